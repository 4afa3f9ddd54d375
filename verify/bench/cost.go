package bench

import (
	"runtime"
	"syscall"
	"time"
)

// cost is what a turn used.
type cost struct {
	requests, server float64 // of the server: requests, seconds of processor time
	client           float64 // seconds of processor time of this process
	mallocs, bytes   float64 // of this process
}

// measure runs turn and returns its cost.
func (b *Bench) measure(p Peer, turn func() error) (c cost, err error) {
	before, err := b.server.counters(p.Direct)
	if err != nil {
		return c, err
	}
	var start, end runtime.MemStats
	cpu := cpuTime()
	runtime.ReadMemStats(&start)
	if err := turn(); err != nil {
		return c, err
	}
	runtime.ReadMemStats(&end)
	c.client = (cpuTime() - cpu).Seconds()
	c.mallocs, c.bytes = float64(end.Mallocs-start.Mallocs), float64(end.TotalAlloc-start.TotalAlloc)
	after, err := b.server.counters(p.Direct)
	c.requests, c.server = after.requests-before.requests, after.cpu-before.cpu
	return c, err
}

// per adds to v the cost of each of n operations.
func (c cost) per(n float64, p Peer, v Values) {
	v["client_us"] = 1e6 * c.client / n
	if !p.Local && c.server > 0 {
		v["requests"], v["server_us"] = c.requests/n, 1e6*c.server/n
	}
}

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
