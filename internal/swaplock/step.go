package swaplock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// mostSwaps is how often a step is tried. Others have written the line each time.
const mostSwaps = 200

// errBusy says that a step was never the first to write.
var errBusy = &driver.RefusedError{Err: errors.New("others write this line all the time")}

// job is a step of one call.
type job struct {
	ctx  context.Context
	f    func(r *reading, s *line.Step) error
	err  error         // the answer, once done is closed
	done chan struct{} // closed when the job is over
}

// batch is the steps of one key that are done by one swap, and what is known of its lost attempts.
type batch struct {
	b       *Backend
	key     string
	jobs    []*job
	dropped map[string]time.Duration // the records that were dropped, and when they would have ended
	lent    map[string]bool          // the records that were made
}

// step runs f on the line of key, again and again until nobody else has written the line meanwhile.
// What f has seen or answered in a lost attempt is nothing: f begins anew each time. Steps of one
// key that come while another is under way go together into the next swap.
//
// f may run after ctx has ended and step has returned: what it writes is read only if err is nil,
// and is no result parameter of its caller.
func (b *Backend) step(ctx context.Context, key string, f func(r *reading, s *line.Step) error) error {
	if err := b.ended(ctx); err != nil {
		return err
	}
	j := &job{ctx: ctx, f: f, done: make(chan struct{})}
	b.mu.Lock()
	queue, running := b.queues[key]
	b.queues[key] = append(queue, j)
	if !running {
		b.running.Go(func() { b.run(key) })
	}
	b.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mostJobs is how many steps go into one swap.
const mostJobs = 256

// run does the steps of key until there are none.
func (b *Backend) run(key string) {
	for {
		b.mu.Lock()
		jobs := b.queues[key]
		if len(jobs) == 0 {
			delete(b.queues, key)
			b.mu.Unlock()
			return
		}
		n := min(len(jobs), mostJobs)
		b.queues[key] = jobs[n:]
		b.mu.Unlock()
		a := batch{b: b, key: key, jobs: jobs[:n], dropped: map[string]time.Duration{}, lent: map[string]bool{}}
		err := a.run()
		for _, j := range a.jobs {
			if err != nil {
				j.err = err
			}
			close(j.done)
		}
	}
}

// run does the steps. The error is that of all of them.
func (a *batch) run() error {
	ctx, cancel := context.WithCancel(a.b.ctx)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(a.jobs)))
	for _, j := range a.jobs {
		defer context.AfterFunc(j.ctx, func() {
			if left.Add(-1) == 0 {
				cancel() // nobody waits for an answer
			}
		})()
	}
	for n := range mostSwaps {
		if err := pause(ctx, n); err != nil {
			return a.b.failed(ctx, err)
		}
		done, err := a.try(ctx)
		if done || err != nil {
			return err
		}
	}
	return errBusy
}

// pause waits a little after some lost swaps.
func pause(ctx context.Context, lost int) error {
	if lost < 3 {
		return ctx.Err()
	}
	t := time.NewTimer(rand.N(time.Duration(min(lost, 20)) * time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try is one attempt.
func (a *batch) try(ctx context.Context) (done bool, err error) {
	st, err := a.b.store.Read(ctx, a.key)
	if err != nil {
		return false, a.b.failed(ctx, err)
	}
	r, err := open(a.key, st, a.dropped)
	if err != nil {
		return false, err
	}
	if ids := r.expired(); len(ids) > 0 {
		// The store decides whether they were renewed meanwhile.
		return false, a.b.failed(ctx, a.b.store.Drop(ctx, a.key, ids, true))
	}
	s := &line.Step{Wall: st.Now, Mono: sinceEpoch(st.Now)}
	r.Purge(s)
	for _, j := range a.jobs {
		if j.err = j.ctx.Err(); j.err == nil {
			j.err = j.f(r, s)
		}
	}
	content, err := r.close(s)
	if err != nil {
		return false, err
	}
	if r.same(&content) {
		a.forget(ctx, r)
		return true, nil
	}
	c := &Change{If: st.Version, Content: content, Wake: concerned(s)}
	if r.purged() {
		c.Ended = st.Expires
	}
	swapped, err := a.swap(ctx, r, c)
	if err != nil || !swapped {
		return false, a.b.failed(ctx, err)
	}
	a.forget(ctx, r)
	a.b.waiters.wake(a.key, c.Wake)
	return true, nil
}

// swap writes c, and the records that go with it before.
func (a *batch) swap(ctx context.Context, r *reading, c *Change) (bool, error) {
	if ends := r.needless(); len(ends) > 0 {
		if err := a.b.store.Drop(ctx, a.key, slices.Collect(maps.Keys(ends)), false); err != nil {
			return false, err
		}
		maps.Copy(a.dropped, ends)
	}
	if len(r.lent) > 0 {
		var ls []Lease
		for c := range r.lent {
			ls = append(ls, Lease{a.key, c.ID, c.Expires - sinceEpoch(r.Now)}) // which may be longer than its TTL
			a.lent[c.ID] = true
		}
		if err := a.b.store.Lend(ctx, ls); err != nil {
			return false, err
		}
	}
	return a.b.store.Swap(ctx, a.key, c)
}

// forget drops the records that lost attempts have made for claims that are gone. It is of no
// matter if that fails: nobody renews them.
func (a *batch) forget(ctx context.Context, r *reading) {
	for c := range r.lent {
		delete(a.lent, c.ID)
	}
	if len(a.lent) > 0 {
		_ = a.b.store.Drop(ctx, a.key, slices.Collect(maps.Keys(a.lent)), false)
	}
}

// concerned lists those who have something to hear.
func concerned(s *line.Step) (ids []string) {
	for _, n := range s.News {
		ids = append(ids, driver.ShortID(n.Claim.ID))
	}
	return ids
}

// ended says why no call is served any more, or returns nil.
func (b *Backend) ended(ctx context.Context) error {
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// failed names the store in err, and prefers the end of ctx.
func (b *Backend) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := cmp.Or(b.ended(ctx), driver.Ended(ctx)); ended != nil {
		return ended
	}
	return fmt.Errorf("%s: %w", b.info.Name, err)
}
