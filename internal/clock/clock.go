// Package clock keeps the time that leases count by.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock returns the time since it was started, in nanoseconds. It goes on while the machine
// sleeps. Go's monotonic clock stops then on Linux and macOS, so a holder that slept through
// its lease would take the lease for alive. On Linux the clock adds the time slept. Elsewhere
// it is Go's clock, which includes sleep on Windows and not on macOS.
//
// The time slept is CLOCK_BOOTTIME − CLOCK_MONOTONIC. A testing/synctest bubble changes
// neither, so in a bubble this clock is as virtual as time.Now.
type Clock struct {
	base    time.Time
	asleep0 int64
	asleep  atomic.Int64 // time slept since base
	sampled atomic.Int64 // when asleep was read, by Go's clock
}

// New returns a clock that has been started.
func New() *Clock {
	c := new(Clock)
	c.Start()
	return c
}

// sampleEvery bounds how old the reading of the time slept may be. It is half of the
// constant margin of every deadline.
const sampleEvery = time.Millisecond

// Start sets the clock to zero. It is called once, before any other method.
func (c *Clock) Start() {
	c.base = time.Now()
	c.asleep0, _ = Asleep()
	c.sampled.Store(-int64(sampleEvery))
}

// Since returns the time since at, a result of Now.
func (c *Clock) Since(at int64) time.Duration { return time.Duration(c.Now() - at) }

// Now returns the time since Start, in nanoseconds.
func (c *Clock) Now() int64 {
	t := int64(time.Since(c.base))
	if last := c.sampled.Load(); t-last >= int64(sampleEvery) {
		c.sample(t)
	}
	return t + c.asleep.Load()
}

func (c *Clock) sample(t int64) {
	c.sampled.Store(t)
	total, ok := Asleep()
	if !ok {
		return
	}
	// A real sleep is longer than a millisecond. A smaller difference comes from reading
	// two clocks one after the other, and must not make this clock run backwards.
	slept := total - c.asleep0
	for {
		known := c.asleep.Load()
		if slept < known+int64(time.Millisecond) || c.asleep.CompareAndSwap(known, slept) {
			return
		}
	}
}

// Never is a time that does not come.
const Never = int64(1)<<62 - 1

// Shortest is the shortest duration of a timer of the core. In a testing/synctest
// bubble two timers that are due as they are set crash the race detector (golang/go#78156).
const Shortest time.Duration = 1

// NewTimer returns a timer that fires in d, at once if d is not positive.
func NewTimer(d time.Duration) *time.Timer { return time.NewTimer(max(d, Shortest)) }

// Wall converts a time of this clock to wall-clock time.
func (c *Clock) Wall(at int64) time.Time {
	return time.Now().Add(time.Duration(at - c.Now()))
}

// Skip lets the clock believe that the machine has slept for d, for tests. The clock must be one
// that reads the time slept (see Asleep).
func (c *Clock) Skip(d time.Duration) {
	c.asleep0 -= int64(d)
	c.sampled.Store(-int64(time.Hour))
}
