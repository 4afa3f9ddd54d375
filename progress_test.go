package fencelock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A Tick beside the watchdog: a stall that stays noted is one that the Tick has seen.
func TestTickAndStallSeeEachOther(t *testing.T) {
	const rounds = 60_000
	const limit = 10
	var seen, begun [rounds]bool
	grants := make([]progress, rounds)
	var arrived [2]atomic.Int64
	both := sync.WaitGroup{}
	race := func(me int, f func(i int)) {
		for i := range rounds { // in step with the other one
			arrived[me].Store(int64(i))
			for spins := 1; arrived[1-me].Load() < int64(i); spins++ {
				if spins%1000 == 0 {
					runtime.Gosched()
				}
			}
			f(i)
		}
		arrived[me].Store(rounds)
	}
	for i := range grants {
		grants[i].limit = limit
	}
	both.Go(func() { race(0, func(i int) { seen[i] = grants[i].tick(limit) }) })
	both.Go(func() { race(1, func(i int) { begun[i] = grants[i].beginStall(limit) }) })
	both.Wait()
	stalls := 0
	for i := range grants {
		if begun[i] != grants[i].stalled.Load() || grants[i].last.Load() != limit {
			t.Fatalf("begun %v, noted %v, last %d", begun[i], grants[i].stalled.Load(), grants[i].last.Load())
		}
		if begun[i] && !seen[i] {
			t.Fatal("the Tick missed a stall that stays")
		}
		if begun[i] {
			stalls++
		}
	}
	t.Logf("%d of %d stalls began before the Tick", stalls, rounds)
}

func TestStallBeginsOnce(t *testing.T) {
	p := &progress{limit: 10}
	p.last.Store(5)
	for _, step := range []struct {
		now  int64
		want bool
	}{{14, false}, {15, true}, {16, false}} {
		if got := p.beginStall(step.now); got != step.want {
			t.Errorf("at %d: %v", step.now, got)
		}
	}
	if !p.tick(20) || !p.tick(12) || p.last.Load() != 20 {
		t.Errorf("the last Tick is %d, want that of 20", p.last.Load())
	}
}
