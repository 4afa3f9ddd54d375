package drivertest

import (
	"cmp"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Allowances. None of them judges a healthy backend on a slow machine: what must
// happen is waited for until patience ends, and what must not have happened is
// judged only where the times of sending and answering prove that it was early.
const (
	lawLimit   = 5 * time.Minute        // one law, with all its rounds
	patience   = 30 * time.Second       // for what must happen
	longLease  = 10 * time.Minute       // for claims that must not expire meanwhile
	firstLease = 300 * time.Millisecond // where a law is about time; see Lease
	maxRounds  = 6                      // of a timed law
	pollEvery  = 5 * time.Millisecond

	// aboutASecond is the longest that Await may take when nothing changes, and an alarm.
	aboutASecond = 5 * time.Second
	// callsASecond is the most calls of Await that return within a second while
	// nothing changes, and mostCalls the most that any test makes for one claim.
	callsASecond = 20
	mostCalls    = 5000
	// prompt tells a push or a poll from the look after a second that stands behind it.
	prompt = 500 * time.Millisecond
)

// until waits for an instant.
func (w *world) until(at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-w.ctx.Done():
		w.t.Fatalf("the law took longer than %v", lawLimit)
	}
}

// void is what a round panics with when it proves nothing: the machine was too slow for the
// lease, or else a message was late or lost.
type void struct {
	why  string
	slow bool
}

// timed plays a schedule with a short lease, and void rounds again. A slow machine gets twice the lease.
func timed(schedule func(w *world, key string)) func(w *world, _ string) {
	return func(w *world, _ string) {
		lease := max(w.info.MinTTL, cmp.Or(w.conf.lease, firstLease))
		for range maxRounds {
			w.lease = min(lease, w.info.MaxTTL)
			v := attempt(func() { schedule(w, w.key()) })
			if v == (void{}) {
				return
			}
			w.t.Logf("a round with a lease of %v proved nothing: %s", w.lease, v.why)
			if v.slow {
				lease *= 2
			}
		}
		w.t.Fatalf("in each of %d rounds something came too late, see above", maxRounds)
	}
}

// attempt plays a round, and says whether it was void.
func attempt(play func()) (v void) {
	defer func() {
		if r := recover(); r != nil {
			v = r.(void)
		}
	}()
	play()
	return void{}
}

// inTime makes the round void unless at is before the limit.
func (w *world) inTime(what string, at, limit time.Time) {
	if !at.Before(limit) {
		panic(void{what + " came " + at.Sub(limit).String() + " too late", true})
	}
}

// voidIf makes the round void if a call failed, as it does when it comes too late.
func (w *world) voidIf(what string, err error) {
	if err != nil {
		panic(void{what + ": " + err.Error(), true})
	}
}

// promptly makes the round void if what has happened now took too long.
func (w *world) promptly(what string, since time.Time) {
	if took := time.Since(since); took > prompt {
		panic(void{what + " came after " + took.String(), false})
	}
}

// notBefore holds a grant that has just been made to the end of a lease before it.
func (w *world) notBefore(end time.Time) {
	early := time.Until(end)
	w.wrongIf(early > 0, "the next in line was granted %v before its time", early)
}

// short is an exclusive claim on key with the round's lease.
func (w *world) short(key string) driver.Claim { return lasting(w.claim(key), w.lease) }

// longest is a time to linger, or to hold, that does not end during a test.
func (w *world) longest() time.Duration { return min(longLease, w.info.MaxTTL) }

// soon does f, which must not take longer than aboutASecond.
func (w *world) soon(what string, f func()) {
	start := time.Now()
	f()
	took := time.Since(start)
	w.wrongIf(took > aboutASecond, "%s took %v; want about a second at most", what, took)
}
