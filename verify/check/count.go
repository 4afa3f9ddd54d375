package check

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Numbers are what a run came to.
type Numbers struct {
	Seconds                                  float64
	Keys, Calls, Held, Refused, GaveUp, Lost int
	Again, Unconfirmed, Breaks               int
	Crashes, Stops                           int
	Asked                                    int // operations that users began
	Ambiguous                                int // and of which nobody was told what came of them
	Stuck                                    int // keys that somebody waited for in vain, or claims that stayed
	TimedOut                                 int // keys whose operations the model could not order in time
	Disagreed                                int // keys that the sweep and the model do not agree on
	Faults                                   map[string]int
	ByWay                                    map[string]int
	Epsilon                                  time.Duration
	Wait50, Wait99, WaitMax                  time.Duration
	LongestGap                               time.Duration // with a waiter, after a holder has vanished
	AfterFault                               time.Duration // longest from the end of an outage to the next grant
	ToldLate                                 time.Duration // longest from a deadline to the end of the context
	LostUpdates                              int           // of the sets without a guard
	Denied                                   int           // by the guard
	Operations                               int           // that the model has ordered
}

// count sums up a run.
func (v *Verdict) count(lines []traffic.Line, all []*claim, o Options) {
	n := &v.Numbers
	n.Faults, n.ByWay, n.Epsilon = map[string]int{}, map[string]int{}, o.Epsilon
	if len(lines) > 0 {
		n.Seconds = time.Duration(lines[len(lines)-1].At - lines[0].At).Seconds()
	}
	for _, one := range v.Violations {
		if one.Rule == string(history.Stuck) || one.Rule == string(history.WakeUp) || one.Rule == "I8" {
			n.Stuck++
		}
	}
	n.countClaims(all)
	n.countLines(lines)
	n.countGrants(all, v.Outages)
	n.LongestGap = longestGap(all)
	for _, d := range []*time.Duration{
		&n.Epsilon, &n.Wait50, &n.Wait99, &n.WaitMax, &n.LongestGap, &n.AfterFault, &n.ToldLate,
	} {
		*d = d.Round(10 * time.Microsecond)
	}
}

func (n *Numbers) countClaims(all []*claim) {
	keys := map[string]bool{}
	for _, c := range all {
		keys[c.key] = true
		n.Calls++
		n.Asked++
		if c.done.Op == "" || c.done.Op == traffic.GaveUp {
			n.Ambiguous++
		}
		switch {
		case c.held:
			n.countHeld(c)
		case c.done.Op == traffic.Refused:
			n.Refused++
		default:
			n.GaveUp++
		}
		for _, l := range c.looks {
			if l.Op == traffic.Again {
				n.Asked++
			}
		}
		for _, h := range c.handles {
			if h.release.Op == "" {
				continue
			}
			n.Asked++
			if h.released.Op == "" || h.released.Op == traffic.Unconfirmed {
				n.Ambiguous++
			}
		}
	}
	n.Keys = len(keys)
}

func (n *Numbers) countHeld(c *claim) {
	n.Held++
	n.ByWay[way(c.key)]++
	n.Again += len(c.handles) - 1
	if c.lost != 0 {
		n.Lost++
	}
}

func (n *Numbers) countLines(lines []traffic.Line) {
	broke := 0
	for _, l := range lines {
		switch l.Op {
		case traffic.Begin:
			n.Faults[l.Text]++
		case traffic.Crash:
			n.Crashes++
		case traffic.Stop:
			n.Stops++
		case traffic.Unconfirmed:
			n.Unconfirmed++
		case traffic.Break:
			n.Breaks++
			n.Asked++
		case traffic.Renewed:
			n.Asked++
		case traffic.Broke:
			if l.Text != "unknown" {
				broke++
			}
		}
	}
	n.Ambiguous += n.Breaks - broke
}

// countGrants measures how long grants were waited for, and how soon they came after a
// fault.
func (n *Numbers) countGrants(all []*claim, outages []history.Span) {
	var waits []time.Duration
	var grants []int64
	for _, c := range all {
		if c.held {
			waits = append(waits, time.Duration(c.done.At-c.call.At))
			grants = append(grants, c.done.At)
		}
	}
	slices.Sort(waits)
	if len(waits) > 0 {
		n.Wait50, n.Wait99, n.WaitMax = waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
	}
	slices.Sort(grants)
	for _, s := range outages {
		i, _ := slices.BinarySearch(grants, int64(s.To))
		if i < len(grants) {
			n.AfterFault = max(n.AfterFault, time.Duration(grants[i])-s.To)
		}
	}
}

// longestGap is the longest time in which a key had a waiter and no holder, after a
// holder had vanished without a release.
func longestGap(all []*claim) time.Duration {
	byKey := map[string][]*claim{}
	for _, c := range all {
		byKey[c.key] = append(byKey[c.key], c)
	}
	longest := int64(0)
	for _, cs := range byKey {
		for _, c := range cs {
			if !c.held || c.clean() {
				continue
			}
			end := max(c.sure, c.lost)
			next := int64(0)
			for _, d := range cs {
				if d.held && d != c && d.call.At < end && d.done.At > end && (next == 0 || d.done.At < next) {
					next = d.done.At
				}
			}
			if next != 0 {
				longest = max(longest, next-end)
			}
		}
	}
	return time.Duration(longest)
}
