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
