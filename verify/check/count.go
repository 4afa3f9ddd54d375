package check

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Numbers are what a run came to.
type Numbers struct {
	Lines       map[string]int // of each traffic.Op
	Faults      map[string]int
	ByWay       map[string]int // grants
	Held        int
	Asked       int // operations that users began
	Ambiguous   int // and of which nobody was told what came of them
	Stuck       int // keys that somebody waited for in vain, or claims that stayed
	TimedOut    int // keys whose operations the model could not order in time
	Disagreed   int // keys that the sweep and the model do not agree on
	Operations  int // that the model has ordered
	LostUpdates int // of the sets without a guard
	Epsilon     time.Duration
	LongestGap  time.Duration // with a waiter, after a holder has vanished
	AfterFault  time.Duration // longest from the end of an outage to the next grant
	ToldLate    time.Duration // longest from a deadline to the end of the context
}

// count sums up a run.
func (v *Verdict) count(lines []traffic.Line, all []*claim, o Options) {
	n := &v.Numbers
	n.Lines, n.Faults, n.ByWay, n.Epsilon = map[string]int{}, map[string]int{}, map[string]int{}, o.Epsilon
	for _, l := range lines {
		n.Lines[string(l.Op)]++
		switch l.Op {
		case traffic.Begin:
			n.Faults[l.Text]++
		case traffic.Call, traffic.Again, traffic.Renewed, traffic.Release:
			n.Asked++
		case traffic.Break:
			n.Asked++
			n.Ambiguous++
		case traffic.Broke:
			if l.Text != "unknown" {
				n.Ambiguous--
			}
		}
	}
	for _, one := range v.Violations {
		if one.Rule == history.Stuck || one.Rule == history.WakeUp || one.Rule == "I8" {
			n.Stuck++
		}
	}
	n.countClaims(all)
	n.AfterFault = afterFault(all, v.Outages)
	n.LongestGap = longestGap(all)
}

func (n *Numbers) countClaims(all []*claim) {
	for _, c := range all {
		if c.held {
			n.Held++
			n.ByWay[traffic.Way(c.Key)]++
		}
		if c.done.Op == "" || c.done.Op == traffic.GaveUp {
			n.Ambiguous++
		}
		for _, h := range c.handles {
			if h.release.Op != "" && (h.released.Op == "" || h.released.Op == traffic.Unconfirmed) {
				n.Ambiguous++
			}
		}
	}
}

// afterFault is the longest time from the end of an outage to the next grant.
func afterFault(all []*claim, outages []history.Span) (longest time.Duration) {
	var grants []int64
	for _, c := range all {
		if c.held {
			grants = append(grants, c.done.At)
		}
	}
	slices.Sort(grants)
	for _, s := range outages {
		if i, _ := slices.BinarySearch(grants, int64(s.To)); i < len(grants) {
			longest = max(longest, time.Duration(grants[i])-s.To)
		}
	}
	return longest
}

// longestGap is the longest time in which a key had a waiter and no holder, after a
// holder had vanished without a release.
func longestGap(all []*claim) time.Duration {
	longest := int64(0)
	for _, cs := range byKey(all) {
		for _, c := range cs {
			if !c.held || c.clean() {
				continue
			}
			end := max(c.sure, c.lost)
			next := int64(0)
			for _, d := range cs {
				if d.held && d != c && d.At < end && d.done.At > end && (next == 0 || d.done.At < next) {
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
