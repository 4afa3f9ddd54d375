package stall

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// A Tick beside the watchdog: a stall that stays noted is one that the Tick has seen.
func TestTickAndStallSeeEachOther(t *testing.T) {
	const rounds = 2000
	stalls := 0
	for start, n := time.Now(), 0; n < 30 && time.Since(start) < 2*time.Second; n++ {
		stalls += raceTickAndStall(t, rounds)
	}
	t.Logf("%d stalls began before the Tick", stalls)
}

// raceTickAndStall returns how many stalls began before a Tick that came at the same time.
func raceTickAndStall(t *testing.T, rounds int) (stalls int) {
	const limit = 10
	seen, begun, grants := make([]bool, rounds), make([]bool, rounds), make([]Progress, rounds)
	var arrived [2]atomic.Int64
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
		arrived[me].Store(int64(rounds))
	}
	for i := range grants {
		grants[i].limit = limit
	}
	var both sync.WaitGroup
	both.Go(func() { race(0, func(i int) { seen[i] = grants[i].Tick(limit) }) })
	both.Go(func() { race(1, func(i int) { begun[i] = grants[i].Begin(limit) }) })
	both.Wait()
	for i := range grants {
		switch p := &grants[i]; {
		case begun[i] != p.stalled.Load() || p.last.Load() != limit:
			t.Fatalf("begun %v, noted %v, last %d", begun[i], p.stalled.Load(), p.last.Load())
		case begun[i] && !seen[i]:
			t.Fatal("the Tick missed a stall that stays")
		case begun[i]:
			stalls++
		}
	}
	return stalls
}

func TestStallBeginsOnce(t *testing.T) {
	p := &Progress{limit: 10}
	p.last.Store(5)
	for _, step := range []struct {
		now  int64
		want bool
	}{{14, false}, {15, true}, {16, false}} {
		steps.Same(t, fmt.Sprint("at ", step.now), p.Begin(step.now), step.want)
	}
	if !p.Tick(20) || !p.Tick(12) || p.last.Load() != 20 {
		t.Errorf("the last Tick is %d, want that of 20", p.last.Load())
	}
}
