package bubble_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/drivertest/faulty"
)

// program is what some processes do to one store, and what their networks do to them.
// A run of it follows from it alone: what is drawn at random is drawn before.
type program struct {
	Faults uint64 // the seed of what the networks draw
	Calm   bool   // no answer is lost, and nothing takes long
	Procs  []proc
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
	Odd    bool          // with a note, which keeps it from the gate
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
	usual   times = ""
	ttl     times = "ttl"
	fixed   times = "fixed"
	maxHold times = "maxhold"
	minHold times = "minhold"
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
// both by mistake.
const (
	keyA, keyB, keySem, keyMixed = "a", "b", "s", "m"
)

// ms draws a time in ms.
func ms(t *rapid.T, label string, least, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least/time.Millisecond), int64(most/time.Millisecond)).Draw(t, label)) * time.Millisecond
}

func pick[T any](t *rapid.T, label string, of ...T) T {
	return rapid.SampledFrom(of).Draw(t, label)
}

// one reports true once in n.
func one(t *rapid.T, label string, n int) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// programs draws programs.
func programs(calm bool) *rapid.Generator[program] {
	return rapid.Custom(func(t *rapid.T) program {
		p := program{Faults: rapid.Uint64().Draw(t, "faults"), Calm: calm}
		for range rapid.IntRange(1, 3).Draw(t, "procs") {
			p.Procs = append(p.Procs, drawProc(t, calm))
		}
		return p
	})
}

func drawProc(t *rapid.T, calm bool) proc {
	p := proc{
		Lease:   pick(t, "lease", time.Second, 5*time.Second),
		HandOff: pick(t, "handoff", 64, 1, 2, 5),
	}
	p.Net.DropPushes = one(t, "deaf", 3)
	if calm {
		p.Net.Delay = ms(t, "delay", 0, 20*time.Millisecond)
	} else {
		p.Net.Delay = p.Lease / time.Duration(rapid.IntRange(16, 100).Draw(t, "delay"))
		if one(t, "slow", 6) {
			p.Net.Delay = p.Lease / time.Duration(rapid.IntRange(3, 15).Draw(t, "delay"))
		}
		p.Net.Fail = float64(rapid.IntRange(0, 25).Draw(t, "fail")) / 100
		p.Net.Lose = float64(rapid.IntRange(0, 25).Draw(t, "lose")) / 100
		p.Net.Late = float64(rapid.IntRange(0, 20).Draw(t, "late")) / 100
		for range rapid.IntRange(0, 3).Draw(t, "outages") {
			p.Outages = append(p.Outages, outage{ms(t, "after", 0, 5*p.Lease), ms(t, "for", 0, 2*p.Lease)})
		}
	}
	if one(t, "ends", 6) {
		p.Ends = pick(t, "how", closes, shutsDown)
		p.EndsAt = ms(t, "at", 1, 8*p.Lease)
	}
	for range rapid.IntRange(1, 3).Draw(t, "workers") {
		var w []use
		for range rapid.IntRange(1, 5).Draw(t, "uses") {
			w = append(w, drawUse(t, p.Lease))
		}
		p.Workers = append(p.Workers, w)
	}
	return p
}

func drawUse(t *rapid.T, lease time.Duration) use {
	u := use{
		Verb: pick(t, "verb", lock, lock, lock, rlock, rlock, acquire, acquire, tryLock, tryRLock, tryAcquire, lockAll, breaks, looks),
		Key:  pick(t, "key", keyA, keyA, keyA, keyB, keyMixed),
		Wait: -1,
	}
	if one(t, "rests", 2) {
		u.After = ms(t, "after", 0, lease)
	}
	if u.Verb == acquire || u.Verb == tryAcquire {
		u.Key = pick(t, "semaphore", keySem, keySem, keySem, keyMixed)
		u.Size = pick(t, "size", int64(3), 3, 2)
		u.Weight = rapid.Int64Range(1, u.Size).Draw(t, "weight")
	}
	switch rapid.IntRange(0, 5).Draw(t, "ends") {
	case 4:
		u.Wait = ms(t, "wait", 1, 3*lease)
	case 5:
		u.Cancel = ms(t, "cancel", 1, 3*lease)
	}
	if u.Verb.try() || u.Verb == lockAll {
		u.Wait = -1
	}
	switch u.Times = pick(t, "times", usual, usual, usual, usual, ttl, fixed, maxHold, minHold); u.Times {
	case ttl, fixed, maxHold:
		u.Length = ms(t, "length", lease/2, 2*lease)
	case minHold:
		u.Length = ms(t, "length", 0, lease)
	}
	u.Odd = one(t, "odd", 8)
	if u.Verb != lockAll {
		u.Inner = pick(t, "inner", nothing, nothing, nothing, nothing, reenters, outlives, deadlocks)
	}
	u.Hold = ms(t, "hold", 0, lease/10)
	if one(t, "long", 2) {
		u.Hold = ms(t, "longer", 0, 2*lease)
	}
	u.Renew, u.Dead = one(t, "renew", 5), one(t, "dead", 5)
	return u
}

// GoString shows a program as people read it.
func (p program) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "faults %d\n", p.Faults)
	for i, q := range p.Procs {
		fmt.Fprintf(&b, "p%d: lease %v, handoff %d, net %+v", i, q.Lease, q.HandOff, q.Net)
		for _, o := range q.Outages {
			fmt.Fprintf(&b, ", out for %v after %v", o.For, o.After)
		}
		if q.EndsAt > 0 {
			fmt.Fprintf(&b, ", %s at %v", [...]string{"closed", "shut down"}[q.Ends], q.EndsAt)
		}
		b.WriteByte('\n')
		for j, w := range q.Workers {
			fmt.Fprintf(&b, "  p%dw%d:\n", i, j)
			for _, u := range w {
				fmt.Fprintf(&b, "    %s\n", u)
			}
		}
	}
	return b.String()
}

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
