//go:build unix && !aix

package traffic

import "golang.org/x/sys/unix"

// Now is CLOCK_MONOTONIC in ns: all processes of this machine agree on it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("CLOCK_MONOTONIC cannot be read: " + err.Error())
	}
	return ts.Nano()
}
