package fencelock

import (
	"sync/atomic"
	"time"
)

// clock tells the time since it was made, in nanoseconds, and goes on while the
// machine sleeps. Go's monotonic clock stands still then (on Linux and macOS),
// so a holder that slept through its lease would go on believing. On Linux the
// time slept is added; elsewhere it is what Go's clock says (on Windows that
// includes sleep, on macOS it does not).
//
// The time slept is CLOCK_BOOTTIME − CLOCK_MONOTONIC. Both run outside of a
// testing/synctest bubble, so their difference is still there, and the clock is
// as virtual as time.Now.
type clock struct {
	base    time.Time
	asleep0 int64
	asleep  atomic.Int64 // time slept since base
	sampled atomic.Int64 // when asleep was read, by Go's clock
}

// sampleEvery bounds how stale the time slept may be. It is half of the margin
// that every deadline keeps.
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
	// A real sleep is longer than a millisecond; less is the jitter of reading two
	// clocks one after the other, which must not make ours run backwards.
	slept := total - c.asleep0
	for {
		known := c.asleep.Load()
		if slept < known+int64(time.Millisecond) || c.asleep.CompareAndSwap(known, slept) {
			return
		}
	}
}

// soonest is the shortest time that a timer of this package is set to. One that is due as it
// is set is run there and then, and in a testing/synctest bubble two of them at once end the
// race detector (golang/go#78156): ours, and that of whoever tests with package memlock.
const soonest time.Duration = 1

// timerFor returns a timer for that long from now.
func timerFor(d time.Duration) *time.Timer { return time.NewTimer(max(d, soonest)) }

// wall turns a time of this clock into one that people and timers understand.
func (c *clock) wall(at int64) time.Time {
	return time.Now().Add(time.Duration(at - c.now()))
}
