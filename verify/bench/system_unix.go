//go:build unix

package bench

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// sharedGuard maps the file at path, which it makes if need be, and returns the
// guard that lies in it. All processes that do so share it.
func sharedGuard(path string) (g *guard, unmap func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(guard{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return (*guard)(unsafe.Pointer(&mem[0])), func() error { return syscall.Munmap(mem) }, nil
}

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// canYield says whether yieldAlways works here.
const canYield = true

// yieldAlways makes the calling thread one that runs when no other wants to.
func yieldAlways() error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) }
