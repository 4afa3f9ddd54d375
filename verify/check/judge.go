// Package check judges what package traffic has written down.
//
// Two checkers judge: the sweep of internal/history, and package model. The model must find
// what the sweep finds; a disagreement is a failure. The model also orders concurrent
// grants, and asks who was in the way of a refusal. This package judges the rest:
//
//	I3    loss       a lease never says that it is held after its deadline, and its context ends then
//	I7    release    a lock that was lost says so when it is given back
//	I8    residue    in the end the store holds no claim, and every key can be had
//	set   updates    what the guarded resource has acknowledged is there in the end
//	hang  calls      return when their context ends, releases within two seconds
//
// Progress has a scheduling allowance ε: the largest measured delay of a timer, or of a line of the
// history, in a process that was not stopped. Safety needs none: see package traffic.
package check

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Options say what was promised.
type Options struct {
	traffic.Traits
	TTL time.Duration
	// Epsilon is the scheduling allowance; Judge measures it.
	Epsilon time.Duration
}

// stuck is how long a key may go without a grant after its holder is gone: its lease by
// a clock that goes 1 % wrong, what the service adds, and that the store, the waiter and
// the witness each may be late by ε.
func (o Options) stuck() time.Duration {
	return o.TTL + o.TTL/100 + o.Lag + 3*o.Epsilon + slack
}

// slack is for the round trips of a wake-up on a busy machine.
const slack = 250 * time.Millisecond

// backoff is the longest pause of a Client between two tries, by default.
const backoff = time.Second

// wake is the same after a release that the store has confirmed; 0 for no promise.
func (o Options) wake() time.Duration {
	if o.Wake == 0 {
		return 0
	}
	return o.Wake + 3*o.Epsilon + slack
}

// Verdict is what came of a check.
type Verdict struct {
	Violations []history.Violation // of the rules of history, and of this package
	Numbers    Numbers
	Outages    []history.Span
	Illegal    map[string][]model.Op // keys that the model refuses
}

// Judge goes through a history. An error says that the history makes no sense.
func Judge(lines []traffic.Line, o Options) (*Verdict, error) {
	v := &Verdict{Illegal: map[string][]model.Op{}}
	stops := stopped(lines)
	o.Epsilon = epsilon(lines, stops)
	all := claims(lines)
	hit(all, lines, o.TTL)
	v.Outages = outages(lines)
	es := events(all, lines)
	// After an outage callers come back within their back-off, and what they are not told
	// they ask for within the fallback. Only then a lease's time begins.
	healed := slices.Clone(v.Outages)
	for i := range healed {
		healed[i].To += backoff + o.wake()
	}
	found, err := history.Check(es, history.Options{
		Stuck: o.stuck(), Wake: o.wake(), Exact: true, Outages: slices.Concat(healed, maybes(all, lines)),
	})
	if err != nil {
		return nil, err
	}
	v.Violations = found
	swept := map[string]bool{}
	for _, f := range found {
		if f.Rule != history.Stuck && f.Rule != history.WakeUp && f.Rule != history.Fence {
			swept[f.Key] = true
		}
	}
	v.order(operations(all, o, healed), swept)
	v.losses(lines, stops, o)
	v.hangs(all, stops, o)
	v.sets(lines)
	v.said(lines)
	v.count(lines, all, o)
	slices.SortStableFunc(v.Violations, func(a, b history.Violation) int { return cmp.Compare(a.At, b.At) })
	return v, nil
}

func (v *Verdict) add(rule history.Rule, key string, at int64, format string, args ...any) {
	v.Violations = append(v.Violations, history.Violation{
		Rule: rule, Key: key, At: time.Duration(at), Text: fmt.Sprintf(format, args...),
	})
}

// bounded is how long the search through one key may take.
const bounded = 20 * time.Second

// order asks the model about each key, and whether it and the sweep agree.
func (v *Verdict) order(ops map[string][]model.Op, swept map[string]bool) {
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for key, list := range ops {
		all.Go(func() error {
			verdict := model.Check(list, bounded)
			mu.Lock()
			defer mu.Unlock()
			v.ordered(key, list, verdict, swept[key])
			return nil
		})
	}
	_ = all.Wait()
}

// ordered takes in what the model says of one key.
func (v *Verdict) ordered(key string, list []model.Op, verdict model.Verdict, swept bool) {
	v.Numbers.Operations += len(list)
	if verdict != model.Legal {
		v.Illegal[key] = list
	}
	at := int64(0)
	if len(list) > 0 {
		at = list[0].Call
	}
	switch {
	case verdict == model.TimedOut:
		v.Numbers.TimedOut++
		v.add("model", key, at, "no order of %d operations was found within %v", len(list), bounded)
	case verdict == model.Illegal && !swept:
		v.Numbers.Disagreed++
		v.add("model", key, at, "%d operations have no legal order; the sweep found nothing", len(list))
	case verdict == model.Legal && swept:
		v.Numbers.Disagreed++
		v.add("disagree", key, at, "the sweep found a breach, and the model an order without one")
	}
}

// span is a time in ns.
type span struct{ from, to int64 }

// stopped are the times in which each process did not run.
func stopped(lines []traffic.Line) map[string][]span {
	all := map[string][]span{}
	for _, l := range lines {
		switch l.Op {
		case traffic.Stop:
			all[l.Proc] = append(all[l.Proc], span{l.At, 1<<63 - 1})
		case traffic.Resume:
			if n := len(all[l.Proc]); n > 0 {
				all[l.Proc][n-1].to = l.At
			}
		}
	}
	return all
}

func touches(spans []span, from, to int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from <= to && s.to >= from })
}

// epsilon is the largest delay of a timer, or of a line of the history, in a process that ran.
func epsilon(lines []traffic.Line, stops map[string][]span) time.Duration {
	worst := int64(0)
	for _, l := range lines {
		if l.Op == traffic.Tick && !touches(stops[l.Proc], l.At-l.Ns, l.At) {
			worst = max(worst, l.Ns)
		}
	}
	return time.Duration(worst)
}

// losses judges I3. A look says from before which moment the lease was held, and until
// when; the clock of the deadline is read a moment later.
func (v *Verdict) losses(lines []traffic.Line, stops map[string][]span, o Options) {
	const reading = int64(time.Millisecond)
	for _, l := range lines {
		switch l.Op {
		case traffic.Held, traffic.Look, traffic.Release:
			if l.Until != 0 && l.At > l.Until+reading && !touches(stops[l.Proc], l.At, l.At+int64(o.Epsilon)) {
				v.add("I3", l.Key, l.At, "the lease of %s with token %d says that it is held %v after its deadline",
					l.Claim, l.Token, time.Duration(l.At-l.Until))
			}
		case traffic.Told:
			late := l.At - l.Until
			if l.Until == 0 || late <= 0 || touches(stops[l.Proc], l.Until-reading, l.At) {
				continue
			}
			v.Numbers.ToldLate = max(v.Numbers.ToldLate, time.Duration(late))
			if time.Duration(late) > 3*o.Epsilon+slack {
				v.add("I3", l.Key, l.At, "the context of %s with token %d ended %v after its deadline; ε is %v",
					l.Claim, l.Token, time.Duration(late), o.Epsilon)
			}
		}
	}
}

// hangs judges whether calls return.
func (v *Verdict) hangs(all []*claim, stops map[string][]span, o Options) {
	const budget = 2 * time.Second // of a release
	allowed := int64(3*o.Epsilon + slack + 500*time.Millisecond)
	for _, c := range all {
		late := func(from, to, limit int64) bool { return to > limit+allowed && !touches(stops[c.Proc], from, to) }
		if c.By != 0 && late(c.At, c.done.At, c.By) {
			v.add("hang", c.Key, c.By, "the call for %s returned %v after its context had ended",
				c.Claim, time.Duration(c.done.At-c.By))
		}
		for _, h := range c.handles {
			if h.release.Op != "" && late(h.release.At, h.released.At, h.release.At+int64(budget)) {
				v.add("hang", c.Key, h.release.At, "the release of %s took %v; at most two seconds are promised",
					c.Claim, time.Duration(h.released.At-h.release.At))
			}
		}
	}
}

// sets judges what became of the sets. What the guarded ones acknowledged is there in the
// end. The others lose updates of holders that write late, as all locks do: those are
// counted.
func (v *Verdict) sets(lines []traffic.Line) {
	final := map[string][]string{}
	for _, l := range lines {
		if l.Op == traffic.Final {
			final[l.Key] = l.Members
		}
	}
	for _, l := range lines {
		switch {
		case l.Op != traffic.Added || final[l.Key] == nil || slices.Contains(final[l.Key], l.Claim):
		case traffic.Way(l.Key) != "guard":
			v.Numbers.LostUpdates++
		default:
			v.add("set", l.Key, l.At, "%s with token %d added itself to version %d of the guarded set; "+
				"that was acknowledged, and it is not there in the end", l.Claim, l.Token, l.Base)
		}
	}
}

// said takes over what workers and the run itself found odd.
func (v *Verdict) said(lines []traffic.Line) {
	for _, l := range lines {
		if l.Op != traffic.Odd {
			continue
		}
		rule, text, ok := strings.Cut(l.Text, ": ")
		if !ok || !slices.Contains([]string{"I8", "I5", "worker", "hang"}, rule) {
			rule, text = "I7", l.Text
		}
		v.Violations = append(v.Violations, history.Violation{
			Rule: history.Rule(rule), Key: l.Key, At: time.Duration(l.At), Text: text,
			First: history.Event{Claim: l.Claim},
		})
	}
}
