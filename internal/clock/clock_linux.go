package clock

import (
	"syscall"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

func gettime(id uintptr) (int64, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano(), errno == 0
}

// Asleep returns how long the machine has slept since boot. It reports false if the two
// clocks could not be read within 50 µs: a thread that is descheduled between the two
// readings would count as sleep.
func Asleep() (int64, bool) {
	for range 3 {
		before, ok1 := gettime(clockMonotonic)
		boot, ok2 := gettime(clockBoottime)
		after, ok3 := gettime(clockMonotonic)
		if !ok1 || !ok2 || !ok3 {
			return 0, false
		}
		if after-before < 50_000 {
			return boot - before, true
		}
	}
	return 0, false
}
