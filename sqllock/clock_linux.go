package sqllock

import (
	"hash/fnv"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

const clockBoottime = 7

// hostTime is the time namespace that every process is in unless it asked for
// another one; the kernel gives it this fixed number.
const hostTime = "time:[4026531834]"

// sinceBoot returns the µs since this host was started, sleep included. Nobody can
// set that clock, and all processes of the host read the same.
func sinceBoot() (int64, bool) {
	if bootID() == 0 {
		return 0, false
	}
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano() / 1000, errno == 0
}

// bootID names the clock that sinceBoot reads: another boot is another clock, and
// so is a container whose boot time was shifted. It is 0 where that cannot be
// known, and then there is no such clock.
var bootID = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(text)
	// Kernels before 5.6 have no such link, and no time namespaces.
	if ns, err := os.Readlink("/proc/self/ns/time"); err == nil && ns != hostTime {
		h.Write([]byte(ns))
	}
	return max(1, int64(h.Sum64()>>1))
})
