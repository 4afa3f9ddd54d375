package fencelock

import (
	"math/rand/v2"
	"time"
)

// Backoff says what to do after a request has failed: how long to pause, and whether to
// try again. attempt counts the failures in a row from 1; last is the newest one, a
// transient error of the store, or a *HeldError where the backend keeps no line and is
// asked again and again. If again is false, the call ends with last, as ErrUnavailable or
// ErrNotAcquired.
//
// A pause is at least 1 ms, and no longer than the call may wait. Waiting in line is no
// failure: Wait bounds the waiting. Renewals and releases use only the pause, and are repeated
// as long as a repeat can help. Of the goroutines that queue in one process for one key, only
// the first asks the store, with its own Backoff.
//
// A Backoff must be safe for concurrent use, and must not call the Client.
type Backoff func(attempt int, last error) (pause time.Duration, again bool)

// ConstantBackoff pauses for d before each try. Programs that failed together come back
// together, so prefer ExponentialBackoff where there are many.
func ConstantBackoff(d time.Duration) Backoff {
	return func(int, error) (time.Duration, bool) { return d, true }
}

// ExponentialBackoff doubles the pause from first to longest and draws each from its upper
// half, so that programs that failed together do not come back together.
func ExponentialBackoff(first, longest time.Duration) Backoff {
	return func(attempt int, _ error) (time.Duration, bool) {
		d := min(first, longest)
		for ; attempt > 1 && d > 0 && d < longest; attempt-- {
			d = min(2*d, longest)
		}
		return d/2 + rand.N(max(d/2, 0)+1), true
	}
}

// LimitTries is b, and gives up after n failures in a row.
func LimitTries(b Backoff, n int) Backoff {
	return func(attempt int, last error) (time.Duration, bool) {
		pause, again := b(attempt, last)
		return pause, again && attempt < n
	}
}

// LimitTime is b, and gives up when the next pause would bring the pauses since the last
// success to more than d. The time of the requests themselves is not counted: Wait and a
// deadline on ctx bound a call as a whole. LimitTime calls b for each attempt so far.
func LimitTime(b Backoff, d time.Duration) Backoff {
	return func(attempt int, last error) (pause time.Duration, again bool) {
		left := d
		for i := 1; i <= attempt; i++ {
			pause, again = b(i, last)
			left -= max(pause, shortestPause)
			if !again || left < 0 {
				return pause, false
			}
		}
		return pause, true
	}
}

const (
	shortestPause = time.Millisecond
	longestPause  = 24 * time.Hour
)

// pauseAfter asks b, and brings its answer into bounds.
func (b Backoff) pauseAfter(attempt int, last error) (pause time.Duration, again bool) {
	pause, again = b(attempt, last)
	return min(max(pause, shortestPause), longestPause), again
}
