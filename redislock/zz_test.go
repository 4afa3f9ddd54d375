package redislock

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

func cpu(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var u, s float64
	fmt.Sscan(f[11], &u)
	fmt.Sscan(f[12], &s)
	return (u + s) * 10000 // µs
}
func self() float64 {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return float64(r.Utime.Sec+r.Stime.Sec)*1e6 + float64(r.Utime.Usec+r.Stime.Usec)
}

func TestZZ(t *testing.T) {
	s := testserver.Redis(t)
	rdb := dial(t, s)
	for _, g := range []int{1, 64} {
		claims := make([]driver.Claim, 64)
		for i := range claims {
			claims[i] = mutex(fmt.Sprintf("bench-%d", i))
		}
		run := func(name string, n int, pair func(i int) error) {
			var left atomic.Int64
			left.Store(int64(n))
			var group sync.WaitGroup
			a, b := cpu(s.Pid()), self()
			for i := range g {
				group.Go(func() {
					for left.Add(-1) >= 0 {
						if err := pair(i); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			fmt.Printf("g=%d %-10s server %.1fµs client %.1fµs per pair\n", g, name, (cpu(s.Pid())-a)/float64(n), (self()-b)/float64(n))
		}
		for range 3 {
			run("raw", 40000, func(i int) error { return rawPair(rdb, claims[i].Key) })
			locks := New(rdb, nil)
			run("own", 40000, func(i int) error { return lockPair(locks, claims[i]) })
			alone := New(rdb, &Options{NoPipeline: true})
			run("alone", 40000, func(i int) error { return lockPair(alone, claims[i]) })
		}
	}
}
