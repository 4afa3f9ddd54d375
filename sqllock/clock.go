package sqllock

import "time"

// instant is one reading of the clocks that a step is judged by.
type instant struct {
	clock int64 // names the clock that at counts on; 0 is the wall clock
	at    int64 // µs
	wall  int64 // µs since 1970: for people, for tokens, and between clocks
}

// readClock reads the clocks of this host. Two readings of which one happened
// before the other are in that order on every clock but the wall clock, also when
// different processes made them.
func readClock() instant {
	wall := time.Now().UnixMicro()
	if boot, ok := sinceBoot(); ok {
		return instant{clock: bootID(), at: boot, wall: wall}
	}
	return instant{at: wall, wall: wall}
}

// serverTime is a reading of a server's clock.
func serverTime(us int64) instant { return instant{at: us, wall: us} }

// lease is how long something lasts, on the clock of whoever wrote it and on the
// wall clock.
type lease struct {
	clock, expires, until, ttl int64
}

// lasting returns a lease that begins now.
func (i instant) lasting(d time.Duration) lease {
	us := d.Microseconds()
	return lease{clock: i.clock, expires: i.at + us, until: i.wall + us, ttl: us}
}

// left returns how long l still lasts: on its own clock if that is ours, else by
// the wall clock and never more than a whole lease. What is beyond all numbers, in a row that
// was written by hand, is so on its own side.
func (l lease) left(now instant) time.Duration {
	if l.clock == now.clock {
		return between(now.at, l.expires)
	}
	return min(between(0, l.ttl), between(now.wall, l.until))
}

// between is the time from one µs to another.
func between(from, to int64) time.Duration { return time.UnixMicro(to).Sub(time.UnixMicro(from)) }
