package bench

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// guard is visited under the lock and checks exclusion and tokens. It is made of atomic
// numbers, so that it can lie in memory that processes share.
type guard struct {
	inside    atomic.Int64 // visitors at this moment
	last      atomic.Int64 // the last visitor's ID; 0 before the first
	token     atomic.Int64 // the last visitor's token
	leftAt    atomic.Int64 // when the last visitor left, in ns since 1970
	over      atomic.Bool  // violations do not count any more
	grants    atomic.Int64
	handovers atomic.Int64 // grants whose holder before was another goroutine
	crossings atomic.Int64 // grants whose holder before was another process
	violating atomic.Int64 // grants while somebody was inside
	unordered atomic.Int64 // grants whose token was not above the last one
}

// visitor is a goroutine, as a number from 1, of a process, from 0.
type visitor struct {
	process, goroutine int64
	clock              bool // hand-overs between processes are timed
}

func (v visitor) id() int64 { return v.process<<32 | v.goroutine }

// enter is called under the lock by a visitor that has waited since then. For a visitor with
// a clock that was already waiting, it returns how long the lock took to come from another
// process.
func (g *guard) enter(v visitor, token int64, since time.Time) (crossing time.Duration) {
	if g.inside.Add(1) != 1 && !g.over.Load() {
		g.violating.Add(1)
	}
	if token != 0 && g.token.Swap(token) >= token && !g.over.Load() {
		g.unordered.Add(1)
	}
	before := g.last.Swap(v.id())
	g.grants.Add(1)
	if before == 0 || before == v.id() {
		return 0
	}
	g.handovers.Add(1)
	if before>>32 != v.process {
		g.crossings.Add(1)
		if v.clock && since.UnixNano() < g.leftAt.Load() {
			crossing = time.Duration(time.Now().UnixNano() - g.leftAt.Load())
		}
	}
	return crossing
}

// leave is called under the lock, as the last thing.
func (g *guard) leave(v visitor) {
	if v.clock {
		g.leftAt.Store(time.Now().UnixNano())
	}
	g.inside.Add(-1)
}

// violations must be 0.
func (g *guard) violations() float64 {
	return float64(g.violating.Load() + g.unordered.Load())
}

// sharedGuard maps the file at path, which it makes if need be, and returns the guard that
// lies in it. All processes that do so share it. The mapping ends with the process.
func sharedGuard(path string) (*guard, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(guard{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return (*guard)(unsafe.Pointer(&mem[0])), nil
}
