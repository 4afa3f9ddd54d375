package sqllock

import (
	"math"
	"time"
)

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
// the wall clock and never more than a whole lease.
func (l lease) left(now instant) time.Duration {
	us := l.expires - now.at
	if l.clock != now.clock {
		us = min(l.ttl, l.until-now.wall)
	}
	// A row that was written by hand may say anything. What is beyond all numbers is so
	// on its own side.
	const most = int64(math.MaxInt64 / time.Microsecond)
	switch {
	case l.clock != now.clock:
	case l.expires > now.at && us < 0:
		us = most
	case l.expires < now.at && us > 0:
		us = -most
	}
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}
