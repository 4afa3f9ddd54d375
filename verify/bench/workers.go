package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long goroutines and processes may take to end a turn.
const patience = 10 * time.Second

// worker is one goroutine that locks and unlocks its key again and again. A sample is how
// long it waited for a shared key, or how long it took to lock and unlock its own.
type worker struct {
	visitor
	key    string
	guard  *guard
	locker Locker
	pause  time.Duration // after each unlock
	hold   time.Duration // before it

	waiting   atomic.Int64 // since when, as time since the start; -1 if it does not wait
	n         int64        // grants
	samples   []time.Duration
	crossings []time.Duration // how long a hand-over from another process took
	err       error
}

// workers are the goroutines of one turn in one process.
type workers struct {
	all       []*worker
	shared    bool         // all want one key
	total     atomic.Int64 // grants, recorded or not
	recording atomic.Bool
	stopping  atomic.Bool
	done      sync.WaitGroup
	cancel    context.CancelFunc
	started   time.Time
}

// newWorkers makes n workers. keys gives each its key, and the guard of that key.
func newWorkers(l Locker, n int, shared bool, keys func() (string, *guard)) *workers {
	ws := &workers{shared: shared}
	for i := range n {
		// Room for samples is made beforehand, so that allocations are the library's own.
		w := &worker{
			visitor: visitor{goroutine: int64(i) + 1}, locker: l, samples: make([]time.Duration, 0, 1<<16/n),
		}
		w.key, w.guard = keys()
		ws.all = append(ws.all, w)
	}
	return ws
}

// onOneKey makes n workers that want one key.
func onOneKey(l Locker, n int, key string, g *guard) *workers {
	return newWorkers(l, n, true, func() (string, *guard) { return key, g })
}

// start lets all workers run until stop.
func (ws *workers) start() {
	var ctx context.Context
	ctx, ws.cancel = context.WithCancel(context.Background())
	ws.started = time.Now()
	for _, w := range ws.all {
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
}

// inside is what happens under the lock.
func (ws *workers) inside(w *worker, token int64) {
	since := time.Duration(w.waiting.Swap(-1))
	crossing := w.guard.enter(w.visitor, token, ws.started.Add(since))
	ws.total.Add(1)
	if ws.recording.Load() {
		w.n++
		if crossing > 0 {
			w.crossings = append(w.crossings, crossing)
		}
		if ws.shared {
			w.samples = append(w.samples, time.Since(ws.started)-since)
		}
	}
	if w.hold > 0 {
		time.Sleep(w.hold)
	}
	w.guard.leave(w.visitor)
}

// stop ends a turn. Workers with keys of their own finish the pair that they are at; those
// that wait for a shared key are cancelled, and their waits so far are samples too.
func (ws *workers) stop() error {
	ws.stopping.Store(true)
	defer ws.cancel()
	var unmet []time.Duration
	if ws.shared {
		now := time.Since(ws.started)
		for _, w := range ws.all {
			w.guard.over.Store(true)
			if since := w.waiting.Load(); since >= 0 {
				unmet = append(unmet, now-time.Duration(since))
			}
		}
		ws.cancel()
	}
	ended := make(chan struct{})
	go func() {
		ws.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		return fmt.Errorf("goroutines still hang %v after the end of their turn", patience)
	}
	ws.all[0].samples = append(ws.all[0].samples, unmet...)
	for _, w := range ws.all {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// violations are those that the guards saw.
func (ws *workers) violations() (n float64) {
	for _, w := range ws.all {
		n += w.guard.violations()
		if ws.shared { // their guard is one
			break
		}
	}
	return n
}

// sight is what workers have seen: of one process, or of several.
type sight struct {
	Grants             []int64 // of each goroutine
	Samples, Crossings []time.Duration
	CPU                time.Duration
}

func (s *sight) add(o sight) {
	s.Grants = append(s.Grants, o.Grants...)
	s.Samples = append(s.Samples, o.Samples...)
	s.Crossings = append(s.Crossings, o.Crossings...)
	s.CPU += o.CPU
}

func (ws *workers) saw() (s sight) {
	for _, w := range ws.all {
		s.add(sight{[]int64{w.n}, w.samples, w.crossings, 0})
	}
	return s
}

// values are what one can say of it.
func (s sight) values() Values {
	slices.Sort(s.Samples)
	slices.Sort(s.Crossings)
	return Values{
		"jain":   jain(s.Grants),
		"p50_us": percentile(s.Samples, 50) / 1e3, "p99_us": percentile(s.Samples, 99) / 1e3,
		"p50_ms": percentile(s.Samples, 50) / 1e6, "p99_ms": percentile(s.Samples, 99) / 1e6,
		"crossing_p50_us": percentile(s.Crossings, 50) / 1e3,
	}
}
