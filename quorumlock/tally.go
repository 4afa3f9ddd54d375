package quorumlock

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// tally counts the answers to one ballot. Those who answer count, until it has ended; who
// waits for it is woken when there is something to do, which is once if it is granted.
type tally struct {
	b     *Backend
	claim driver.Claim // as it was proposed
	sent  time.Time
	over  atomic.Bool   // set when it has failed: nobody else need be asked
	bell  chan struct{} // has something in it when it has ended, or was lost

	mu      sync.Mutex
	ended   bool // from here on nothing changes
	told    bool // that it is lost
	came    int
	answers []answer
	floor   int64 // the largest that was heard of
	refused bool  // a ballot was: floor is what to go by
	late    bool  // no answer is waited for any longer
	cut     error // the caller waits no longer
}

// add counts what a node has answered.
func (v *tally) add(a answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return
	}
	v.note(a)
	// Fewer can neither grant nor refuse it.
	if v.came++; v.came < v.b.majority {
		return
	}
	if v.ended = v.settled(); !v.ended && (v.told || !v.lost()) {
		return
	}
	v.told = true
	select {
	case v.bell <- struct{}{}:
	default: // it was told that it is lost, and has not looked yet
	}
}

// end ends it if it is settled, or nobody waits for it any longer. It reports whether it
// has ended, and if not, whether it is lost.
func (v *tally) end(late bool, cut error) (ended, lost bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		v.late, v.cut = late, cut
		v.ended = v.settled()
	}
	return v.ended, !v.ended && v.told
}

// note takes in what a node has answered.
func (v *tally) note(a answer) {
	v.answers[a.node] = a
	if a.err == nil {
		v.floor = max(v.floor, a.ticket.Token+a.ticket.Span-1)
		return
	}
	var ballot driver.ErrBallot
	var busy *driver.BusyError
	switch {
	case errors.As(a.err, &ballot):
		v.floor, v.refused = max(v.floor, ballot.Last), true
	case errors.As(a.err, &busy):
		v.floor = max(v.floor, busy.Token)
	}
}

// remember takes over what an earlier vote of the same call has learnt.
func (v *tally) remember(before *tally) {
	v.floor = max(v.floor, before.floor)
	v.refused = v.refused || before.refused
}

// count counts the answers of which f says yes.
func (v *tally) count(f func(a *answer) bool) int {
	n := 0
	for i := range v.answers {
		if a := &v.answers[i]; a.came && f(a) {
			n++
		}
	}
	return n
}

func (v *tally) pending() int { return len(v.answers) - v.count(func(*answer) bool { return true }) }

// granted returns the token that most nodes have granted, and how many have.
func (v *tally) granted() (token int64, n int) {
	return v.most(func(a *answer) int64 {
		if a.err != nil || !a.ticket.Granted {
			return 0
		}
		return a.ticket.Token
	})
}

// head returns the token that most nodes say is in the way, and how many do.
func (v *tally) head() (token int64, n int) {
	return v.most(func(a *answer) int64 {
		if busy, ok := a.busy(); ok {
			return busy.Token
		}
		return 0
	})
}

// agreed reports that a majority says the same of who is in the way.
func (v *tally) agreed() bool {
	busy := v.busiest()
	return busy != nil && v.count(func(a *answer) bool {
		other, ok := a.busy()
		return ok && other.Token == busy.Token && other.Ahead == busy.Ahead
	}) >= v.b.majority
}

// most returns the number above 0 that f finds most often.
func (v *tally) most(f func(a *answer) int64) (what int64, n int) {
	for i := range v.answers {
		x := int64(0)
		if v.answers[i].came {
			x = f(&v.answers[i])
		}
		if x == 0 || x == what {
			continue
		}
		if c := v.count(func(a *answer) bool { return f(a) == x }); c > n {
			what, n = x, c
		}
	}
	return what, n
}

func (a *answer) busy() (busy *driver.BusyError, ok bool) {
	ok = a.err != nil && errors.As(a.err, &busy)
	return busy, ok
}

// settled reports that no further answer matters.
func (v *tally) settled() bool {
	switch _, n := v.granted(); {
	case n >= v.b.majority, v.pending() == 0, v.cut != nil, v.late:
		return true
	case !v.lost():
		return false
	}
	// It is refused; now it is about what to answer.
	return v.agreed() || v.count(func(a *answer) bool { return driver.Gone(a.err) }) >= v.blocking() ||
		v.count((*answer).permanent) > 0
}

// blocking is how many nodes can keep a majority from coming about.
func (v *tally) blocking() int { return len(v.answers) - v.b.majority + 1 }

// lost reports that no majority for one token can come about any more.
func (v *tally) lost() bool {
	_, n := v.granted()
	return n+v.pending() < v.b.majority
}

// ticket returns the ticket if a majority has granted one token in time.
func (v *tally) ticket() (driver.Ticket, bool) {
	token, n := v.granted()
	if n < v.b.majority || v.count((*answer).twin) > 0 {
		return driver.Ticket{}, false
	}
	t := driver.Ticket{Claim: v.claim, Token: token, Granted: true, Left: v.claim.TTL}
	t.Ballot, t.NoWait = 0, true
	for i := range v.answers {
		a := &v.answers[i]
		if !a.came || a.err != nil || a.ticket.Token != token {
			continue
		}
		// A member may grant less than it was asked for. Its lease began after this
		// attempt was sent, and that was after the call was.
		t.Left = min(t.Left, a.ticket.Left)
		t.TTL = min(t.TTL, a.ticket.TTL)
	}
	return t, time.Since(v.sent) < validity(t.Left)
}

func (a *answer) permanent() bool {
	return a.err != nil && errors.As(a.err, new(*driver.PermanentError))
}

// twin reports the one permanent error that concerns the quorum and not a node.
func (a *answer) twin() bool {
	return a.permanent() && strings.HasSuffix(a.err.Error(), "majority of stores")
}

// again reports whether another ballot may do better, and whether that is so because
// several came at once, so that a pause is due.
func (v *tally) again() (again, crowd bool) {
	open := v.count(func(a *answer) bool {
		_, busy := a.busy()
		return a.err == nil || busy || errors.As(a.err, new(driver.ErrBallot))
	})
	if open < v.b.majority || v.count((*answer).twin) > 0 {
		return false, false
	}
	busy := v.count(func(a *answer) bool { _, is := a.busy(); return is })
	if open-busy >= v.b.majority {
		_, n := v.granted()
		return n < v.b.majority, false // a majority that came too late will do so again
	}
	// Whoever has a majority is in the way of one. If nobody can have it, the lock is
	// free, and whoever asks once more may get it.
	_, heads := v.head()
	return heads+len(v.answers)-open < v.b.majority, true
}

// refusal says why the claim was not granted.
func (v *tally) refusal() error {
	if v.cut != nil {
		return v.cut
	}
	var gone driver.ErrGone
	goners, kinds := 0, 0
	for i := range v.answers {
		a := &v.answers[i]
		var g driver.ErrGone
		switch {
		case !a.came:
		case a.twin():
			return a.err
		case errors.As(a.err, &g):
			if goners++; g.Broken || gone.Reason == "" && !gone.Broken {
				gone = g
			}
		case errors.Is(a.err, driver.ErrKind):
			kinds++
		}
	}
	busy := v.busiest()
	answered := v.count(func(a *answer) bool { return a.err == nil || definite(a.err) })
	switch {
	case goners >= v.blocking():
		return gone
	case kinds >= v.blocking():
		return driver.ErrKind
	case v.count((*answer).permanent) >= v.blocking():
		return &driver.PermanentError{Err: v.report()}
	case busy != nil && answered >= v.b.majority:
		return busy
	}
	return v.report()
}

// busiest describes who is in the way on most nodes, as most of those tell it.
func (v *tally) busiest() *driver.BusyError {
	token, _ := v.head()
	ahead, _ := v.most(func(a *answer) int64 {
		if busy, ok := a.busy(); ok && busy.Token == token {
			return int64(busy.Ahead)
		}
		return 0
	})
	for i := range v.answers {
		if busy, ok := v.answers[i].busy(); ok && busy.Token == token && (int64(busy.Ahead) == ahead || ahead == 0) {
			return busy
		}
	}
	return nil
}

// report says what each node that did not grant has answered.
func (v *tally) report() error {
	_, n := v.granted()
	e := &shortError{key: v.claim.Key, have: n, need: v.b.majority, of: len(v.answers)}
	for i := range v.answers {
		switch a := &v.answers[i]; {
		case !a.came:
			e.add(v.b.nodes[i].name, errNoAnswer)
		case a.err != nil:
			e.add(v.b.nodes[i].name, a.err)
		case v.late:
			e.add(v.b.nodes[i].name, errLate)
		}
	}
	return e
}

var errNoAnswer = errors.New("no answer in time")

// shortError says that too few nodes did what was asked.
type shortError struct {
	key            string
	have, need, of int
	texts          []string
	errs           []error
}

func (e *shortError) add(name string, err error) {
	e.texts = append(e.texts, fmt.Sprintf("%s: %v", name, err))
	e.errs = append(e.errs, err)
}

func (e *shortError) Error() string {
	return fmt.Sprintf("%q: %d of %d nodes agreed, %d are needed (%s)", e.key, e.have, e.of, e.need, strings.Join(e.texts, "; "))
}

// As finds the quarantine of a node, for callers that can say what to do about it.
func (e *shortError) As(target any) bool {
	q, ok := target.(**driver.QuarantineError)
	if !ok {
		return false
	}
	for _, err := range e.errs {
		if errors.As(err, q) {
			return true
		}
	}
	return false
}
