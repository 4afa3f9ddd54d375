package fencelock

import (
	"sync/atomic"
	"time"
)

// clock returns the time since it was started, in nanoseconds. It goes on while the machine
// sleeps. Go's monotonic clock stops then on Linux and macOS, so a holder that slept through
// its lease would take the lease for alive. On Linux the clock adds the time slept. Elsewhere
// it is Go's clock, which includes sleep on Windows and not on macOS.
//
// The time slept is CLOCK_BOOTTIME − CLOCK_MONOTONIC. A testing/synctest bubble changes
// neither, so in a bubble this clock is as virtual as time.Now.
type clock struct {
	base    time.Time
	asleep0 int64
	asleep  atomic.Int64 // time slept since base
	sampled atomic.Int64 // when asleep was read, by Go's clock
}

// sampleEvery bounds how old the reading of the time slept may be. It is half of the
// constant margin of every deadline.
const sampleEvery = time.Millisecond

func (c *clock) start() {
	c.base = time.Now()
	c.asleep0, _ = asleep()
	c.sampled.Store(-int64(sampleEvery))
}

func (c *clock) now() int64 {
	t := int64(time.Since(c.base))
	if last := c.sampled.Load(); t-last >= int64(sampleEvery) {
		c.sample(t)
	}
	return t + c.asleep.Load()
}

func (c *clock) sample(t int64) {
	c.sampled.Store(t)
	total, ok := asleep()
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

// shortestTimer is the shortest duration of a timer of this package. In a testing/synctest
// bubble two timers that are due as they are set crash the race detector (golang/go#78156).
const shortestTimer time.Duration = 1

// newTimer returns a timer that fires in d, at once if d is not positive.
func newTimer(d time.Duration) *time.Timer { return time.NewTimer(max(d, shortestTimer)) }

// wall converts a time of this clock to wall-clock time.
func (c *clock) wall(at int64) time.Time {
	return time.Now().Add(time.Duration(at - c.now()))
}
