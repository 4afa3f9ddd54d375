package drivertest

import (
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
	maxRounds  = 6                      // each with twice the lease of the one before
	pollEvery  = 5 * time.Millisecond

	// aboutASecond is the longest that Await may take when nothing changes.
	aboutASecond = 5 * time.Second
	// callsASecond is the most calls of Await that return within a second while
	// nothing changes, and mostCalls the most that any test makes for one claim.
	callsASecond = 20
	mostCalls    = 5000
	// prompt tells a push from the look after a second that stands behind it.
	prompt = 500 * time.Millisecond
)

// interval is when a call was sent and when its answer had come. What the server
// did, it did in between.
type interval struct{ sent, answered time.Time }

// clock measures f.
func clock(f func()) interval {
	var i interval
	i.sent = time.Now()
	f()
	i.answered = time.Now()
	return i
}

// until waits for an instant.
func (w *world) until(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
		w.t.Fatalf("the law took longer than %v", lawLimit)
	}
}

// round is one attempt at a schedule that depends on time.
type round struct {
	*world
	lease time.Duration
}

// void is what a round panics with when the machine was too slow to prove
// anything by it.
type void struct{ why string }

// timed plays a schedule with a short lease, and again with twice the lease if
// the machine was too slow for it. Each round has a key of its own.
func timed(schedule func(r *round, key string)) func(w *world, _ string) {
	return func(w *world, _ string) {
		lease := w.conf.lease
		if lease == 0 {
			lease = firstLease
		}
		lease = max(w.info.MinTTL, lease)
		for range maxRounds {
			why := attempt(func() { schedule(&round{w, min(lease, w.info.MaxTTL)}, w.key()) })
			if why == "" {
				return
			}
			w.t.Logf("a round with a lease of %v proved nothing: %s", lease, why)
			lease *= 2
		}
		w.t.Fatalf("the machine is too slow to judge this law, see above")
	}
}

// attempt plays a round, and says why it was void.
func attempt(play func()) (why string) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case void:
			why = v.why
		default:
			panic(v)
		}
	}()
	play()
	return ""
}

// inTime makes the round void unless at is before the limit.
func (w *world) inTime(what string, at, limit time.Time) {
	if !at.Before(limit) {
		panic(void{what + " came " + at.Sub(limit).String() + " too late"})
	}
}

// voidIf makes the round void if a call came too late.
func (w *world) voidIf(what string, err error) {
	if err != nil {
		panic(void{what + ": " + err.Error()})
	}
}

// notBefore holds a grant that has just been made to the end of a lease before it.
func (w *world) notBefore(end time.Time) {
	early := time.Until(end)
	w.wrongIf(early > 0, "the next in line was granted %v before its time", early)
}

// short is an exclusive claim on key with the round's lease.
func (r *round) short(key string) driver.Claim {
	c := r.claim(key)
	c.TTL = r.lease
	return c
}

// longest is a time to linger, or to hold, that does not end during a test.
func (w *world) longest() time.Duration { return min(longLease, w.info.MaxTTL) }

// over is when a lease of ttl that was started by i has ended for certain.
func (w *world) over(i interval, ttl time.Duration) time.Time {
	return i.answered.Add(ttl + w.conf.lag)
}

// soon does f, which must not take longer than aboutASecond.
func (w *world) soon(what string, f func()) {
	start := time.Now()
	f()
	took := time.Since(start)
	w.wrongIf(took > aboutASecond, "%s took %v; want about a second at most", what, took)
}
