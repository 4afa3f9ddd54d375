package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long goroutines may take to end a turn. Those that take longer are
// cancelled and counted as hung.
const patience = 2 * time.Second

// worker is one goroutine that locks and unlocks its key again and again. A sample is how
// long it waited for a shared key, or how long it took to lock and unlock its own.
type worker struct {
	visitor
	key    string
	guard  *guard
	locker Locker        // if it is not that of the others
	pause  time.Duration // after each unlock

	waiting   atomic.Int64 // since when, as time since the start; -1 if it does not wait
	n         int64        // grants
	handovers int64        // grants whose holder before was another worker
	samples   []time.Duration
	crossings []time.Duration // how long a hand-over from another process took
	err       error
}

// workers are the goroutines of one turn in one process.
type workers struct {
	all       []*worker
	locker    Locker
	shared    bool         // all want one key
	total     atomic.Int64 // grants, recorded or not
	recording atomic.Bool
	stopping  atomic.Bool
	done      sync.WaitGroup
	cancel    context.CancelFunc
	started   time.Time
}

// newWorkers makes n workers. keys gives each its key, and the guard of that key.
func newWorkers(l Locker, n int, keys func(i int) (string, *guard)) *workers {
	ws := &workers{locker: l}
	for i := range n {
		// Room for samples is made beforehand, so that allocations are the library's own.
		w := &worker{visitor: visitor{goroutine: int64(i) + 1}, samples: make([]time.Duration, 0, 1<<16/n)}
		w.key, w.guard = keys(i)
		ws.all = append(ws.all, w)
	}
	return ws
}

// start lets all workers run until stop.
func (ws *workers) start() {
	var ctx context.Context
	ctx, ws.cancel = context.WithCancel(context.Background())
	ws.started = time.Now()
	for _, w := range ws.all {
		if w.locker == nil {
			w.locker = ws.locker
		}
		w.waiting.Store(-1)
		ws.done.Go(func() { ws.work(ctx, w) })
	}
}

// work is what each worker does.
func (ws *workers) work(ctx context.Context, w *worker) {
	inside := func(token int64) { ws.inside(w, token) }
	for !ws.stopping.Load() {
		begun := time.Since(ws.started)
		w.waiting.Store(int64(begun))
		if err := w.locker.Do(ctx, w.key, inside); err != nil {
			if !ws.stopping.Load() {
				w.err = err
			}
			return
		}
		if !ws.shared && ws.recording.Load() {
			w.samples = append(w.samples, time.Since(ws.started)-begun)
		}
		if w.pause > 0 {
			_ = pause(ctx, w.pause)
		}
	}
	w.waiting.Store(-1)
}

// inside is what happens under the lock.
func (ws *workers) inside(w *worker, token int64) {
	since := time.Duration(w.waiting.Swap(-1))
	handover, crossing := w.guard.enter(w.visitor, token, ws.started.Add(since))
	ws.total.Add(1)
	if ws.recording.Load() {
		w.n++
		if handover {
			w.handovers++
		}
		if crossing > 0 {
			w.crossings = append(w.crossings, crossing)
		}
		if ws.shared {
			w.samples = append(w.samples, time.Since(ws.started)-since)
		}
	}
	w.guard.leave(w.visitor)
}

// stop ends a turn. Workers with keys of their own finish the pair that they are at; those
// that wait for a shared key are cancelled, and their waits so far are samples too.
func (ws *workers) stop() (hung int, err error) {
	ws.stopping.Store(true)
	ended := make(chan struct{})
	go func() {
		ws.done.Wait()
		close(ended)
	}()
	var unmet []time.Duration
	if ws.shared {
		now := time.Since(ws.started)
		for _, w := range ws.all {
			w.guard.over.Store(true)
			if since := w.waiting.Load(); since >= 0 {
				unmet = append(unmet, now-time.Duration(since))
			}
		}
	} else {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-ended:
		case <-late.C:
			for _, w := range ws.all {
				if w.waiting.Load() >= 0 {
					hung++
				}
			}
		}
	}
	ws.cancel()
	select {
	case <-ended:
	case <-time.After(5 * patience):
		return hung, fmt.Errorf("goroutines still hang %v after their context has ended", 5*patience)
	}
	ws.all[0].samples = append(ws.all[0].samples, unmet...)
	for _, w := range ws.all {
		if w.err != nil {
			return hung, w.err
		}
	}
	return hung, nil
}

// each is how many grants each worker got.
func (ws *workers) each() []int64 {
	got := make([]int64, len(ws.all))
	for i, w := range ws.all {
		got[i] = w.n
	}
	return got
}

func (ws *workers) grants() (n int64) {
	for _, w := range ws.all {
		n += w.n
	}
	return n
}

func (ws *workers) handovers() (n int64) {
	for _, w := range ws.all {
		n += w.handovers
	}
	return n
}

// violations are those that the guards saw.
func (ws *workers) violations() (n float64) {
	seen := map[*guard]bool{}
	for _, w := range ws.all {
		if !seen[w.guard] {
			n += w.guard.violations()
			seen[w.guard] = true
		}
	}
	return n
}

// sorted returns the samples of all workers.
func (ws *workers) sorted() []time.Duration {
	var all []time.Duration
	for _, w := range ws.all {
		all = append(all, w.samples...)
	}
	slices.Sort(all)
	return all
}
