package sqllock

import (
	"fmt"
	"time"
)

// hostClock reads a clock of this host, in µs. Two readings of which one happened before the other are in that
// order on every clock but the wall clock, also when different processes made them.
func hostClock() int64 {
	if boot, ok := sinceBoot(); ok {
		return boot
	}
	return time.Now().UnixMicro()
}

// clockName names the clock that hostClock reads; it is "" for the wall clock.
func clockName() string {
	if _, ok := sinceBoot(); !ok {
		return ""
	}
	return fmt.Sprint("clock ", bootID())
}
