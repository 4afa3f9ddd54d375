// Package history judges what the users of a lock saw.
//
// A history is a list of events of any number of processes, stamped with one monotonic clock.
// [Check] reports every breach of a [Rule]. A process believes that it holds a lock from the
// return of its call until it calls Release, sees the loss, or crashes.
//
// Overlaps of a stopped process are not judged until it looks again, with a Believe of a
// handle that it has. Its writes are judged by I2b. Options.Exact removes this exemption.
//
// I5 and I6 are judged only while nobody holds the key. Starvation of readers or writers is
// not judged, nor how many permits fit beside the readers of the same key.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rule is one of the rules that a history is judged by.
type Rule string

// The rules, under the names by which they are known.
const (
	Exclusion  Rule = "I1"  // exclusive beliefs of a key never overlap
	Tokens     Rule = "I2"  // tokens of exclusive grants rise in the order of the grants
	Fence      Rule = "I2b" // the resource never accepts a write of an earlier grant after one of a later grant
	Stuck      Rule = "I5"  // when a holder is gone, a live waiter is granted within its lease and an allowance
	WakeUp     Rule = "I6"  // when a holder has released, a live waiter is granted soon
	Reentrancy Rule = "I9"  // a grant with n handles ends with the n-th release, and not before
	ReadWrite  Rule = "I10" // a writer is alone
	Semaphore  Rule = "I11" // the weights held never exceed the size
)

// All returns every rule.
func All() []Rule {
	return []Rule{Exclusion, Tokens, Fence, Stuck, WakeUp, Reentrancy, ReadWrite, Semaphore}
}

// Violation is one breach.
type Violation struct {
	Rule   Rule
	Key    string
	At     time.Duration
	First  Event // what stood before: the older belief, the larger token, the end of the last holder
	Second Event // what clashes with it
	Text   string
}

func (v Violation) String() string {
	where, what := "", ""
	if v.Key != "" {
		where = fmt.Sprintf(" of %q at %v", v.Key, v.At)
	}
	if v.Second.Op != "" {
		what = fmt.Sprintf(" (%v; %v)", v.First, v.Second)
	}
	return string(v.Rule) + where + ": " + v.Text + what
}

// Options say how a history is judged.
type Options struct {
	// Stuck is how long a live waiter may go without a grant after a holder or waiter vanished
	// without a confirmed release: the lease, and what clocks and scheduling add. 0 turns this
	// off, and Wake in such gaps.
	Stuck time.Duration
	// Wake is the same after a confirmed release, or after the waiter came to a free key: the
	// fallback of a lost wake-up, far below a lease. 0 turns this off.
	Wake time.Duration
	// Exact says that a Doubt follows the last moment at which a belief is known. A stop alone
	// then exempts no process: one that looks later and still holds the lock held it all along.
	Exact bool
	// Outages are times without progress: a store that does not answer grants nothing. A gap
	// that touches one may last for Stuck after its end.
	Outages []Span
}

// Span is a time, its ends included: of all keys, or of one.
type Span struct {
	From, To time.Duration
	Key      string // empty for all
}

// Check judges a history. Events of one instant count in the order given, and beliefs that
// merely touch do not overlap. Check returns the breaches in the order of time. A history that
// makes no sense is an error: a belief without an Enter, or a release of what was not held.
func Check(events []Event, o Options) ([]Violation, error) {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	s := newSweep(o)
	for i, e := range sorted {
		if err := s.apply(e); err != nil {
			return nil, fmt.Errorf("history: %v: %w", e, err)
		}
		if i+1 == len(sorted) || sorted[i+1].At != e.At {
			s.settle()
		}
	}
	if len(sorted) > 0 {
		s.end(sorted[len(sorted)-1].At)
	}
	slices.SortStableFunc(s.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return s.found, nil
}

// Broken returns the rules that are broken, each once, in the order of All.
func Broken(vs []Violation) []Rule {
	var rules []Rule
	for _, r := range All() {
		if slices.ContainsFunc(vs, func(v Violation) bool { return v.Rule == r }) {
			rules = append(rules, r)
		}
	}
	return rules
}
