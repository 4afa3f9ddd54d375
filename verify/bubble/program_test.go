package bubble_test

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/drivertest/faulty"
)

// program is what some processes do to one store, and what their networks do to them.
// In the sandbox a run of it follows from it alone: what is drawn at random is drawn before.
type program struct {
	Faults uint64 // the seed of what the networks draw
	Order  uint64 // the seed of what comes first in one instant
	Calm   bool   // no answer is lost, and nothing takes long

	// Simultaneous keeps nothing from falling into the same instant as something else.
	Simultaneous bool
	Procs        []proc
}

// makeSimultaneous makes things fall into the same instant: messages take no time, and all that takes
// time takes multiples of the same.
func (p *program) makeSimultaneous() {
	const step = 100 * time.Millisecond
	round := func(ds ...*time.Duration) {
		for _, d := range ds {
			if *d > 0 { // else it means something else
				*d = max(d.Round(step), step)
			}
		}
	}
	for i := range p.Procs {
		q := &p.Procs[i]
		q.Net.Delay = 0
		round(&q.EndsAt)
		for j := range q.Outages {
			round(&q.Outages[j].After, &q.Outages[j].For)
		}
		for _, w := range q.Workers {
			for k := range w {
				round(&w[k].After, &w[k].Cancel, &w[k].Wait, &w[k].Length, &w[k].Hold)
			}
		}
	}
}

// apart is a little time that keeps things apart, unless the program is simultaneous.
func (p program) apart(d time.Duration) time.Duration {
	if p.Simultaneous {
		return 0
	}
	return d
}

// proc is one process with one Client, behind a network of its own.
type proc struct {
	Lease   time.Duration
	HandOff int
	Net     faulty.Options
	Outages []outage
	Ends    ending
	EndsAt  time.Duration // 0: after its last use
	Workers [][]use
}

// slow reports that the network may take so long that calls run out of time again and
// again: then nobody knows how long it takes to get anywhere.
func (p proc) slow() bool { return p.Net.Delay > p.Lease/16 }

// outage is a time in which the network of a process carries nothing. What is under
// way then arrives afterwards.
type outage struct{ After, For time.Duration }

// ending is how a Client ends.
type ending int

const (
	closes    ending = iota
	shutsDown        // and is closed when that takes too long
)

// use is one thing that a goroutine does, and all that comes of it.
type use struct {
	After  time.Duration // it rests before
	Verb   verb
	Key    string
	Size   int64 // of a semaphore
	Weight int64
	Cancel time.Duration // its context ends; 0: never
	Wait   time.Duration // negative: without bound
	Times  times
	Length time.Duration // of Times
	Odd    bool          // with a note, which makes it bypass the local queue
	Inner  inner
	Hold   time.Duration
	Renew  bool // by hand, in the middle
	Dead   bool // it releases under a context that has ended
}

// verb is the method that is called.
type verb string

const (
	lock       verb = "lock"
	tryLock    verb = "trylock"
	rlock      verb = "rlock"
	tryRLock   verb = "tryrlock"
	acquire    verb = "acquire"
	tryAcquire verb = "tryacquire"
	lockAll    verb = "lockall"
	breaks     verb = "break"
	looks      verb = "look"
)

func (v verb) try() bool { return v == tryLock || v == tryRLock || v == tryAcquire }

// times are the options that say how long.
type times string

const (
	usual     times = ""
	ttl       times = "ttl"
	noRenewal times = "no renewal"
	maxHold   times = "maxhold"
	minHold   times = "minhold"
)

// inner is what is done under the context of a lease, before it is released.
type inner string

const (
	nothing   inner = ""
	reenters  inner = "reenters"  // and releases the inner handle first
	outlives  inner = "outlives"  // and releases the inner handle last
	deadlocks inner = "deadlocks" // asks for the same key without Reentrant
)

// The keys of a program: two that are locks, one semaphore, and one that is used as
// both, and with two sizes, by mistake.
const (
	keyA, keyB, keySem, keyMixed = "a", "b", "s", "m"
)

func (u use) String() string {
	s := fmt.Sprintf("after %v %s %s", u.After, u.Verb, u.Key)
	if u.Size > 0 {
		s += fmt.Sprintf(" %d of %d", u.Weight, u.Size)
	}
	if u.Wait >= 0 {
		s += fmt.Sprintf(", wait %v", u.Wait)
	}
	if u.Cancel > 0 {
		s += fmt.Sprintf(", cancelled after %v", u.Cancel)
	}
	if u.Times != usual {
		s += fmt.Sprintf(", %s %v", u.Times, u.Length)
	}
	s += fmt.Sprintf(", hold %v", u.Hold)
	for _, f := range []struct {
		is   bool
		text string
	}{{u.Odd, "odd"}, {u.Inner != nothing, string(u.Inner)}, {u.Renew, "renews"}, {u.Dead, "releases under a dead context"}} {
		if f.is {
			s += ", " + f.text
		}
	}
	return s
}
