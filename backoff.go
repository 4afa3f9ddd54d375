package fencelock

import (
	"math/rand/v2"
	"time"
)

// Backoff returns how long to pause after a failed request, and whether to try again.
// attempt counts the failures in a row from 1. last is the newest failure: a transient
// error of the store, or a *HeldError if the backend keeps no line and is polled. If again
// is false, the call returns last, as ErrUnavailable or ErrNotAcquired.
//
// A pause is at least 1 ms, and no longer than the call may wait. Waiting in line is not a
// failure: Wait bounds the waiting. Renewals and releases use only the pause, and are
// repeated as long as a repeat can help. Of the goroutines of one process that queue for a
// key, only the first sends requests, with its own Backoff.
//
// A Backoff that pauses for a second, and gives up after three failures in a row:
//
//	func(attempt int, last error) (time.Duration, bool) { return time.Second, attempt < 3 }
//
// A Backoff must be safe for concurrent use, and must not call the Client.
type Backoff func(attempt int, last error) (pause time.Duration, again bool)

// ExponentialBackoff returns a Backoff that doubles the pause from first to longest. It
// draws each pause from its upper half, so that programs that failed together do not retry
// together.
func ExponentialBackoff(first, longest time.Duration) Backoff {
	return func(attempt int, _ error) (time.Duration, bool) {
		d := min(first, longest)
		for ; attempt > 1 && d > 0 && d < longest; attempt-- {
			d = min(2*d, longest)
		}
		return d/2 + rand.N(max(d/2, 0)+1), true
	}
}

const (
	shortestPause = time.Millisecond
	longestPause  = 24 * time.Hour
)

// pauseAfter returns what b returns, brought into bounds.
func (b Backoff) pauseAfter(attempt int, last error) (pause time.Duration, again bool) {
	pause, again = b(attempt, last)
	return min(max(pause, shortestPause), longestPause), again
}
