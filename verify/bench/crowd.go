package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long goroutines may take to end a turn. Those that take longer
// hang: they are cut off and counted.
const patience = 2 * time.Second

// worker is one goroutine that locks and unlocks its key again and again. Its
// samples are how long it waited for the lock, or with pairs how long both took.
type worker struct {
	visitor
	key    string
	guard  *guard
	locker Locker        // if it is not that of the crowd
	pause  time.Duration // after each unlock
	pairs  bool
	quiet  bool // no samples are kept
	most   int  // samples after which it stops; 0: without end

	began     atomic.Int64 // when it last began to wait, since the turn began; -1 if it does not
	start     time.Time    // of the turn
	n         int64
	samples   []time.Duration
	crossings []time.Duration
	err       error
}

// crowd is the goroutines of one turn in one process.
type crowd struct {
	locker  Locker
	workers []*worker
	stop    atomic.Bool
	done    sync.WaitGroup
	cancel  context.CancelFunc
	start   time.Time
}

// gather makes a crowd of n goroutines. keys gives each its key, and guards the
// guard of that key.
func gather(l Locker, n int, keys func(i int) (string, *guard)) *crowd {
	c := &crowd{locker: l}
	for i := range n {
		w := &worker{visitor: visitor{goroutine: int64(i) + 1}}
		w.key, w.guard = keys(i)
		c.workers = append(c.workers, w)
	}
	return c
}

// begin lets all of them loose. They run until halt is called.
func (c *crowd) begin() {
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.start = time.Now()
	for _, w := range c.workers {
		w.start = c.start
		w.began.Store(-1)
		if w.locker == nil {
			w.locker = c.locker
		}
		c.done.Go(func() { w.work(ctx, w.locker, &c.stop) })
	}
}

func (w *worker) work(ctx context.Context, l Locker, stop *atomic.Bool) {
	inside := w.inside
	began := time.Since(w.start)
	for !stop.Load() && (w.most == 0 || len(w.samples) < w.most) {
		w.began.Store(int64(began))
		if err := l.Do(ctx, w.key, inside); err != nil {
			if !stop.Load() {
				w.err = err
			}
			return
		}
		now := time.Since(w.start)
		if w.pairs && !w.quiet {
			w.samples = append(w.samples, now-began)
		}
		began = now
		if w.pause > 0 {
			_ = pause(ctx, w.pause)
			began = time.Since(w.start)
		}
	}
	w.began.Store(-1)
}

// inside is what happens under the lock.
func (w *worker) inside(token int64) {
	crossing := w.guard.enter(w.visitor, token, w.start.Add(time.Duration(w.began.Load())))
	if !w.guard.over.Load() {
		w.n++
		if crossing > 0 {
			w.crossings = append(w.crossings, crossing)
		}
		if !w.pairs {
			w.samples = append(w.samples, time.Since(w.start)-time.Duration(w.began.Load()))
		}
	}
	w.began.Store(-1)
	w.guard.leave(w.visitor)
}

// finish lets each worker end the pair that it is at. It reports how many did not
// in time, and cuts those off.
func (c *crowd) finish() (hung int, err error) {
	c.stop.Store(true)
	return c.settle()
}

// settle waits until each worker has ended. It reports how many did not in time,
// and cuts those off.
func (c *crowd) settle() (hung int, err error) {
	ended := make(chan struct{})
	go func() {
		c.done.Wait()
		close(ended)
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		c.stop.Store(true) // their errors are ours
		for _, w := range c.workers {
			if w.began.Load() >= 0 {
				hung++
			}
		}
	}
	return hung, c.dismiss(ended)
}

// halt ends a turn in which goroutines wait for one another: whoever still waits
// has waited that long, and is cut off.
func (c *crowd) halt() error {
	c.stop.Store(true)
	for _, w := range c.workers {
		w.guard.over.Store(true)
	}
	now := time.Since(c.start)
	unmet := make([]time.Duration, 0, len(c.workers))
	for _, w := range c.workers {
		if began := w.began.Load(); began >= 0 {
			unmet = append(unmet, now-time.Duration(began))
		}
	}
	ended := make(chan struct{})
	go func() {
		c.done.Wait()
		close(ended)
	}()
	if err := c.dismiss(ended); err != nil {
		return err
	}
	c.workers[0].samples = append(c.workers[0].samples, unmet...)
	return nil
}

// dismiss cuts off whoever still waits, and returns the first error of a worker.
func (c *crowd) dismiss(ended <-chan struct{}) error {
	c.cancel()
	late := time.NewTimer(5 * patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		return fmt.Errorf("goroutines still hang %v after their context has ended", 5*patience)
	}
	for _, w := range c.workers {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// pairs is how many pairs all workers did.
func (c *crowd) pairs() (n int64) {
	for _, w := range c.workers {
		n += w.n
	}
	return n
}

// each is how many pairs each worker did.
func (c *crowd) each() []int64 {
	got := make([]int64, len(c.workers))
	for i, w := range c.workers {
		got[i] = w.n
	}
	return got
}

// sorted returns the samples of all workers.
func (c *crowd) sorted() []time.Duration {
	var all []time.Duration
	for _, w := range c.workers {
		all = append(all, w.samples...)
	}
	slices.Sort(all)
	return all
}
