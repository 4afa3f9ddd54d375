package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// read makes lines of such as
//
//	3-12 held a/1 t7 until=900
//
// by process a, of its claim 1, with token 7: asked for at 3 ms, held from 12 ms on. A word with = sets a field. What is
// said of one moment has one number.
func read(t *testing.T, text string) []traffic.Line {
	t.Helper()
	const ms = int64(time.Millisecond)
	var all []traffic.Line
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("cannot read %q: %v", s, err)
		}
		return n
	}
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		if len(f) == 0 {
			continue
		}
		from, to, asked := strings.Cut(f[0], "-")
		l := traffic.Line{At: number(cmp.Or(to, from)) * ms, Op: traffic.Op(f[1]), Key: "mutex/0/0"}
		for _, word := range f[2:] {
			name, value, set := strings.Cut(word, "=")
			switch {
			case !set && word[0] == 't':
				l.Token = number(word[1:])
			case !set && word[0] == 'h':
				l.Handle = word
			case !set && strings.Contains(word, "/"):
				l.Proc, _, _ = strings.Cut(word, "/")
				l.Claim = word
			case !set:
				l.Proc = word
			case name == "key":
				l.Key = value
			case name == "kind":
				l.Kind = history.Kind(value)
			case name == "until":
				l.Until = number(value) * ms
			case name == "by":
				l.By = number(value) * ms
			case name == "ns":
				l.Ns = number(value)
			case name == "weight":
				l.Weight = number(value)
			case name == "size":
				l.Size = number(value)
			case name == "span":
				l.Span = number(value)
			case name == "text":
				l.Text = strings.ReplaceAll(value, "_", " ")
			case name == "outage":
				l.Outage, l.Text = true, value
			case name == "members":
				l.Members = strings.Split(value, ",")
			default:
				t.Fatalf("cannot read %q", word)
			}
		}
		if asked {
			before := l
			before.At, before.Op = number(from)*ms, request(l)
			all = append(all, before)
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b traffic.Line) int { return cmp.Compare(a.At, b.At) })
	return all
}

// request is what l answers.
func request(l traffic.Line) traffic.Op {
	switch {
	case l.Op == traffic.Held && l.Handle != "":
		return traffic.Again
	case l.Op == traffic.Released, l.Op == traffic.Unconfirmed:
		return traffic.Release
	}
	return traffic.Call
}

var promised = Options{
	Traits: traffic.Traits{Told: true, Fair: true, Wake: time.Second},
	TTL:    time.Second,
}

func rules(t *testing.T, text string) []string {
	t.Helper()
	v, err := Judge(read(t, text), promised)
	steps.Must(t, err)
	var all []string
	for _, one := range v.Violations {
		all = append(all, string(one.Rule))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Each broken history breaks the rule named, and with a few words replaced it breaks none.
func TestEachRuleIsJudged(t *testing.T) {
	for _, c := range []struct {
		name, want, broken string
		sound              []string // old, new
	}{
		{"two hold", "I1", `
			0-1 held a/1 t1
			2-3 held b/1 t2
			9-10 released a/1 t1
			11-12 released b/1 t2`, []string{"2-3 held", "2-10 held"}},
		{"one was stopped, and then says that it holds", "I1", `
			0-1 held a/1 t1
			5 stop a
			20-1100 held b/1 t2
			1110-1120 released b/1 t2
			1200 resume a
			1201 look a/1 t1
			1202-1203 released a/1 t1`, []string{"1201 look", "1201 lost", "1202-1203 released a/1 t1", ""}},
		{"a token that is not larger", "I2", `
			0-1 held a/1 t5
			2-3 released a/1 t5
			4-5 held b/1 t5
			6-7 released b/1 t5`, []string{"b/1 t5", "b/1 t6"}},
		{"a late write is let in", "I2b", `
			0-1 held a/1 t1 key=guard/0/0
			5 stop a
			10-1001 held b/1 t2 key=guard/0/0
			1002 wrote b/1 t2 key=guard/0/0
			1003-1004 released b/1 t2 key=guard/0/0
			1005 wrote a/1 t1 key=guard/0/0
			1006 resume a
			1007 lost a/1 t1 key=guard/0/0`, []string{"1005 wrote", "1005 denied"}},
		{"a lease says after its deadline that it is held", "I3", `
			0-1 held a/1 t1 until=100
			105 look a/1 t1 until=100
			110 release a/1 t1 until=1000
			111 released a/1 t1`, []string{"105 look a/1 t1 until=100", "105 look a/1 t1 until=1000"}},
		{"a context that ends late", "I3", `
			0-1 held a/1 t1 until=100
			500 told a/1 t1 until=100
			501 lost a/1 t1 until=100`, []string{"500 told", "101 told", "501 lost", "102 lost"}},
		{"nobody gets the key of one that was killed", "I5", `
			0-1 held a/1 t1
			2-2000 held b/1 t2
			3 crash a
			2001-2002 released b/1 t2`, []string{"2-2000 held", "2-1005 held", "2001-2002", "1006-1007"}},
		{"nobody is told of a release", "I6", `
			0-1 held a/1 t1
			2-2000 held b/1 t2
			3-4 released a/1 t1
			2001-2002 released b/1 t2`, []string{"2-2000 held", "2-900 held", "2001-2002", "901-902"}},
		{"what is free is refused", "model", `
			0-1 held a/1 t1
			2-3 released a/1 t1
			4-5 refused b/1`, []string{"2-3 released", "2-4 released", "4-5 refused", "3-5 refused"}},
		{"refused after the lease of one that was killed", "model", `
			0-1 held a/1 t1
			2 crash a
			2000-2001 refused b/1`, []string{"2000-2001", "900-901"}},
		{"a handle is still held", "I9", `
			0-1 held a/1 t1
			2-3 held a/1 h1 t1
			4-5 released a/1 t1
			6-7 held b/1 t2
			8-9 released a/1 h1 t1
			10-11 released b/1 t2`, []string{"6-7 held", "6-9 held"}},
		{"a writer beside a reader", "I10", `
			0-1 held a/1 kind=r
			2-3 held b/1 t2
			4-5 released a/1 kind=r
			6-7 released b/1 t2`, []string{"b/1 t2", "b/1 kind=r"}},
		{"more permits than there are", "I11", `
			0-1 held a/1 kind=s weight=2 size=3
			2-3 held b/1 kind=s weight=2 size=3
			4-5 released a/1 kind=s
			6-7 released b/1 kind=s`, []string{"b/1 kind=s weight=2", "b/1 kind=s weight=1"}},
		{"a re-entry with another token", "I2", `
			0-1 held a/1 t1
			2-3 held a/1 h1 t2
			4-5 released a/1 h1 t2
			6-7 released a/1 t1`, []string{"h1 t2", "h1 t1"}},
		{"a call that does not end", "hang", `
			0-900 gaveup a/1 by=100`, []string{"0-900", "0-200"}},
		{"a release that does not end", "hang", `
			0-1 held a/1 t1
			2-3000 unconfirmed a/1 t1`, []string{"2-3000", "2-2000"}},
		{"an update of the guarded set is gone", "set", `
			0 added a/1 key=guard/0/0
			1 final key=guard/0/0 members=b/1`, []string{"members=b/1", "members=a/1,b/1"}},
		{"something is left", "I8", `
			0 odd text=I8:_it_is`, []string{"0 odd text=I8:_it_is", "0 note text=I8:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := Judge(read(t, c.broken), promised)
			steps.Must(t, err)
			if len(v.Violations) == 0 {
				t.Fatal("nothing is found")
			}
			for _, one := range v.Violations {
				if string(one.Rule) != c.want {
					t.Errorf("want %s only: %v", c.want, one)
				}
			}
			if got := rules(t, strings.NewReplacer(c.sound...).Replace(c.broken)); len(got) != 0 {
				t.Errorf("the sound history breaks %v", got)
			}
		})
	}
}

// What an operator broke, or a store forgot, is believed for a while by who does not know:
// that is no breach. Without the line that says so it is one.
func TestWhatWasBrokenOrForgottenIsExempt(t *testing.T) {
	const text = `
		0-1 held a/1 t1
		2-6 held b/1 t99
		LINE
		7 look a/1 t1
		8 lost a/1 t1
		9-10 released b/1 t99`
	for line, want := range map[string]int{
		"": 1, "3 break c t1 span=8": 0, "3 break c t50 span=8": 1,
		"3 forgot\n4 end outage=flushall":                    0,
		"3 break c t1 span=8\n4 broke c t1 span=8 text=none": 1,
	} {
		if got := rules(t, strings.ReplaceAll(text, "LINE", line)); len(got) != want {
			t.Errorf("after %q: %v; want %d rules broken", line, got, want)
		}
	}
}

// granted counts the rules that a history breaks in which a claim is granted at ms at last.
func granted(t *testing.T, text, claim string, at int) int {
	t.Helper()
	const last = "%s\n%d held %s t200\n%d release %s t200\n%d released %s t200"
	return len(rules(t, fmt.Sprintf(last, text, at, claim, at+1, claim, at+2, claim)))
}

// Who is granted soon after its store forgot something may hold the key for long, and may
// not: whoever waits behind it is late only when it has gone.
func TestWhoMayHoldIsWaitedFor(t *testing.T) {
	const text = `
		0-1 held a/1 t1
		2 forgot
		3 end text=clock
		4-5 held b/1 t99
		6 call c/1
		7 look a/1 t1
		8 lost a/1 t1
		3000-3001 released b/1 t99`
	steps.Same(t, "rules broken by a grant in time", granted(t, text, "c/1", 3500), 0)
	steps.Same(t, "rules broken by a late grant", granted(t, text, "c/1", 9999), 1)
}

// While the store is down nobody need get a key, and afterwards there is the time to come
// back and a lease.
func TestAnOutagePutsProgressOff(t *testing.T) {
	const text = `
		0-1 held a/1 t1
		2 call b/1
		3 crash a
		500 begin outage=server-pause
		5000 end outage=server-pause`
	steps.Same(t, "rules broken by a grant in time", granted(t, text, "b/1", 8000), 0)
	steps.Same(t, "rules broken by a late grant", granted(t, text, "b/1", 9999), 1)
}

// What the workers and the run itself saw is a breach of the rule that it names.
func TestWhatOthersFoundOddIsTakenOver(t *testing.T) {
	for text, want := range map[string]string{
		"I5: it cannot be had": "I5", "I8: something is left": "I8", "worker: it ended by itself": "worker", "hang: it has not ended": "hang",
		"the release of a lost lock says nothing": "I7", "taking it: an answer that no rule allows": "I7",
	} {
		v, err := Judge([]traffic.Line{{At: 1, Op: traffic.Odd, Text: text, Claim: "a/1", Proc: "a"}}, promised)
		steps.Must(t, err)
		if len(v.Violations) != 1 || string(v.Violations[0].Rule) != want || strings.HasPrefix(v.Violations[0].Text, want) {
			t.Errorf("%q: %v; want %s", text, v.Violations, want)
		}
		if stuck := want == "I5" || want == "I8"; (v.Numbers.Stuck == 1) != stuck {
			t.Errorf("%q: %d are stuck", text, v.Numbers.Stuck)
		}
	}
}

// ε is what processes that ran have seen.
func TestEpsilonIsMeasured(t *testing.T) {
	const text = `
		0 started a
		10 tick a ns=2000000
		20 stop a
		500 resume a
		501 tick a ns=470000000
		600 tick a ns=3000000`
	v, err := Judge(read(t, text), promised)
	steps.Must(t, err)
	steps.Same(t, "ε", v.Numbers.Epsilon, 3*time.Millisecond)
}

// If the sweep finds what the model allows, one of the two is wrong; also the other way
// round, but where both found it.
func TestDisagreementIsAFailure(t *testing.T) {
	for swept, want := range map[bool]int{false: 1, true: 0} {
		v := &Verdict{Illegal: map[string][]model.Op{}}
		v.order(operations(claims(read(t, `
			0-1 held a/1 t1
			2-3 released a/1 t1
			4-5 refused b/1`)), promised, nil), map[string]bool{"mutex/0/0": swept})
		if len(v.Violations) != want || v.Numbers.Disagreed != want || v.Illegal["mutex/0/0"] == nil {
			t.Errorf("swept %v: %v, %d disagree; want %d", swept, v.Violations, v.Numbers.Disagreed, want)
		}
	}
	v := &Verdict{}
	v.order(operations(claims(read(t, `
		0-1 held a/1 t1
		2-3 released a/1 t1`)), promised, nil), map[string]bool{"mutex/0/0": true})
	if len(v.Violations) != 1 || v.Violations[0].Rule != "disagree" || v.Numbers.Disagreed != 1 {
		t.Errorf("%v; want that the two disagree", v.Violations)
	}
}

// What nobody was told the end of is ambiguous: takes that were given up or cut off by a
// kill, releases without an answer, breaks without one.
func TestOperationsAreCounted(t *testing.T) {
	v, err := Judge(read(t, `
		0-1 held a/1 t1
		2-3 held a/1 t1 h1
		4 renewed a/1 t1
		5-6 released a/1 t1 h1
		7 break c t1 span=1
		8 broke c t1 span=1 text=none
		9-10 unconfirmed a/1 t1
		11 break c t5 span=1
		12 broke c t5 span=1 text=unknown
		13 break c t6 span=1
		20-30 gaveup b/1 by=100
		40-41 held b/2 t9 key=mutex/0/1
		42-43 refused c/1 key=mutex/0/1
		44 release b/2 t9 key=mutex/0/1
		45 call b/3 key=mutex/0/1
		50 crash b`), promised)
	steps.Must(t, err)
	if n := v.Numbers; n.Asked != 13 || n.Ambiguous != 6 {
		t.Errorf("%d operations and %d ambiguous; want 5 takes, a re-entry, a renewal, 3 releases and 3 breaks, and of them 6 ambiguous: a take given up, one cut off, two releases, two breaks", n.Asked, n.Ambiguous)
	}
}
