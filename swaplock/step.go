package swaplock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/line"
)

// mostSwaps is how often a step is tried. Others have written the line each time.
const mostSwaps = 200

// errBusy says that a step was never the first to write.
var errBusy = driver.Refused(errors.New("others write this line all the time"))

// stepFunc is what a call does to the line. It may run again: see Backend.step.
type stepFunc func(r *reading, s *line.Step) error

// job is a step of one call.
type job struct {
	ctx context.Context
	f   stepFunc
	// asks returns what has others do the step, if swaps come too late, or nil. Once it is sent f, with r.appended,
	// finds done what it wants, or returns errPart.
	asks     func() []byte
	other    []byte // what asks has returned, if it was sent
	appended bool   // other is among the arrivals, or may be, if the job has ended
	after    int    // other is sent only after so many lost swaps of this very job
	looks    bool   // f changes nothing
	recalls  recall // f may run on the line as it was seen last
	id       string // of the claim that f is about, if it looks or has other
	err      error  // the answer, once done is closed
	done     chan struct{}
}

// batch is the steps of one key that are done by one swap.
type batch struct {
	b    *Backend
	key  string
	jobs []*job

	version string // as it was read last
	last    int64  // the largest token of that
	same    int    // how often they were read in a row
}

// step runs f on the line of key, again and again until nobody else has written the line meanwhile.
// What f has seen or answered in a lost attempt is nothing: f begins anew each time. Steps of one
// key that come while another is under way go together into the next swap.
//
// f may run after ctx has ended and step has returned: what it writes is read only if err is nil,
// and is no result parameter of its caller.
func (b *Backend) step(ctx context.Context, key string, f stepFunc) error {
	return b.do(key, &job{ctx: ctx, f: f})
}

// do runs a job.
func (b *Backend) do(key string, j *job) error {
	if err := b.ended(j.ctx); err != nil {
		return err
	}
	if st := b.recall(key, j.recalls); st != nil {
		a := batch{b: b, key: key, jobs: []*job{j}}
		if done, err := a.swap(j.ctx, *st); done || err != nil {
			return err
		}
	}
	if err := b.begin(key, j); err != nil {
		return err
	}
	return b.wait(j)
}

// begin has jobs run, in one swap if there is room.
func (b *Backend) begin(key string, jobs ...*job) error {
	for _, j := range jobs {
		if err := b.ended(j.ctx); err != nil {
			return err
		}
		j.done = make(chan struct{})
		if j.after == 0 && b.late(key, false) {
			if err := b.append(j.ctx, key, j); err != nil {
				return err
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	queue, running := b.queues[key]
	b.queues[key] = append(queue, jobs...)
	if !running && b.ctx.Err() == nil {
		b.running.Go(func() { b.run(key) })
	}
	return nil
}

// wait waits for a job that has begun.
func (b *Backend) wait(j *job) error {
	select {
	case <-j.done:
		return j.result()
	case <-b.ctx.Done():
		return driver.ErrClosed
	case <-j.ctx.Done():
	}
	t := time.NewTimer(saysWhyFor)
	defer t.Stop()
	select {
	case <-j.done: // most steps end with their context, and say more
		switch {
		case errors.Is(j.err, driver.ErrRefused), errors.Is(j.err, j.ctx.Err()):
			return j.result()
		}
	case <-t.C:
	case <-b.ctx.Done():
	}
	return j.ctx.Err()
}

// saysWhyFor is how long a step that ends with its context may take to say why it had no success.
const saysWhyFor = 20 * time.Millisecond

// result is the answer to j, which is done.
func (j *job) result() error {
	if j.appended {
		return driverutil.Unsettled(j.err) // others may do it still
	}
	return j.err
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
		a := batch{b: b, key: key, jobs: jobs[:n]}
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
	ctx := a.b.ctx
	if len(a.jobs) == 1 {
		ctx = a.jobs[0].ctx // whose end has a name
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.b.ctx, cancel)()
	var left atomic.Int64
	left.Store(int64(len(a.jobs)))
	for _, j := range a.jobs {
		defer context.AfterFunc(j.ctx, func() {
			if left.Add(-1) == 0 {
				cancel() // nobody waits for an answer
			}
		})()
	}
	arrivals := high
	for n := range mostSwaps {
		if err := pause(ctx, n); err != nil {
			return a.b.failed(ctx, err)
		}
		if n == patience {
			a.b.late(a.key, true)
		}
		if err := a.append(ctx, n); err != nil {
			return err
		}
		done, err := a.try(ctx, arrivals)
		if errors.Is(err, errPart) { // no swap was lost
			arrivals = -1
			done, err = a.try(ctx, arrivals)
		}
		if done || err != nil {
			return err
		}
	}
	if a.same >= mostSwaps {
		return driver.Refused(impossible(a.key, "Swap or Purge does nothing, and nobody else has swapped"))
	}
	return errBusy
}

// append has others do those steps that have lost so many swaps.
func (a *batch) append(ctx context.Context, lost int) error {
	var late []*job
	for _, j := range a.jobs {
		if lost == max(j.after, patience) {
			late = append(late, j)
		}
	}
	if late == nil {
		return nil
	}
	errs := make([]error, len(late))
	_ = driverutil.Each(len(late), few, func(i int) error {
		errs[i] = a.b.append(ctx, a.key, late[i])
		return nil
	})
	return cmp.Or(errs...)
}

// patience is after how many lost swaps a step has others do it, and lateFor how long the steps of its key
// do so at once from then on: else a client far away gets a twentieth of its share.
const (
	patience = 1
	lateFor  = time.Second
)

// late reports whether swaps of key come too late. From now on they do if one does now.
func (b *Backend) late(key string, now bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.lateUntil[key]) {
		return true
	}
	if delete(b.lateUntil, key); now {
		b.lateUntil[key] = time.Now().Add(lateFor)
	}
	return now
}

// pause waits a little after some lost swaps.
func pause(ctx context.Context, lost int) error {
	if lost <= patience {
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
func (a *batch) try(ctx context.Context, arrivals int) (done bool, err error) {
	sent := a.b.claims.clock.Now()
	st, err := a.b.store.Read(ctx, a.key, arrivals)
	if err != nil {
		return false, a.b.failed(ctx, err)
	}
	st.sent, st.read, st.took = sent, st.Now, a.b.claims.clock.Since(sent)
	if a.same++; st.Version != a.version || st.Last != a.last {
		a.version, a.last, a.same = st.Version, st.Last, 1
	}
	return a.swap(ctx, st)
}

// swap runs the steps on st, and writes the line if nobody has written it since st was read.
func (a *batch) swap(ctx context.Context, st State) (done bool, err error) {
	r, err := open(a.key, st)
	if err != nil {
		return false, err
	}
	if ids := r.ended(); len(ids) > 0 {
		// The store decides whether they were renewed meanwhile.
		return false, a.b.failed(ctx, a.b.store.Purge(ctx, a.key, ids))
	}
	s := &line.Step{Wall: driverutil.Later(r.Now, r.wall), Mono: sinceEpoch(r.Now)}
	c, err := a.apply(r, s)
	switch {
	case st.recalled && (err != nil || a.jobs[0].err != nil || a.outdated(&st, c)):
		return false, nil
	case err != nil:
		return false, err
	case c == nil:
		if a.b.arriver != nil || len(r.Arrivals) == 0 { // else what the messages do is not written down
			a.b.doubt(a.b.claims.seen(a.key, r))
		}
		return true, nil
	}
	var all []News
	all, c.News = a.b.claims.news(a.key, s)
	version, err := a.b.store.Swap(ctx, a.key, c)
	if err != nil || version == "" {
		return false, a.b.failed(ctx, err)
	}
	if err := c.possible(a.key, version); err != nil {
		return false, err
	}
	r.State = r.after(c, version)
	if len(all) > 0 {
		a.b.heard(a.key, all)
	}
	a.b.doubt(a.b.claims.seen(a.key, r))
	a.b.forget(r.Now)
	return true, nil
}

// outdated reports whether a line that is recalled must be read: if there is nothing to write, as only a swap proves
// that the line is as it was, or if others have probably arrived since, as they do where a lock was waited for.
func (a *batch) outdated(st *State, c *Change) bool {
	if c == nil {
		return true
	}
	return a.b.arriver != nil && c.IfLast != 0 && !st.alone && a.b.claims.clock.Since(st.sent) > lonelyFor
}

// apply runs the steps on r and returns the swap that they need, or nil.
func (a *batch) apply(r *reading, s *line.Step) (*Change, error) {
	n := len(r.Claims)
	a.b.purge(r, s)
	purged := len(r.Claims) < n
	var before time.Time
	if len(r.Claims) > 0 {
		before = fromEpoch(r.NextExpiry())
	}
	if err := r.obey(s); err != nil {
		return nil, err
	}
	for _, j := range a.jobs {
		r.appended = j.appended
		if j.err = j.ctx.Err(); j.err == nil {
			j.err = j.f(r, s)
		}
		if errors.Is(j.err, errPart) {
			return nil, errPart
		}
	}
	if !purged && a.done(r) {
		return nil, nil
	}
	c, err := r.change(s)
	if c != nil {
		c.Before = before // what the steps have found alive must be alive still when the swap lands
	}
	return c, err
}

// purge ends the leases that have ended at the earliest time that it may be, and takes s to the latest: from there on
// new leases count.
func (b *Backend) purge(r *reading, s *line.Step) {
	r.Purge(s)
	s.Mono, s.Grace = s.Mono+b.grace, b.grace
}

// done reports whether nothing is left to do for the jobs, because they only look, or others do it.
func (a *batch) done(r *reading) bool {
	switch {
	case len(r.Arrivals) > high, r.More && !r.Full():
		return false // not all read what the last ones say until it is written down
	}
	for _, j := range a.jobs {
		switch {
		case j.looks && a.b.arriver == nil && len(r.Arrivals) > 0 && !r.asRead(j.id):
			return false // messages may be younger than the document that was read, which a swap shows
		case j.looks:
		case !j.appended || j.err != nil || !r.asRead(j.id):
			return false
		case r.has(j.other):
			return false // nobody has done it yet
		}
	}
	return true
}

// forgetMost is how long that may take.
const forgetMost = 5 * time.Minute

// forget has the store forget what is old, now and then.
func (b *Backend) forget(now time.Time) {
	b.mu.Lock()
	due := !time.Now().Before(b.forgetAt)
	if due {
		b.forgetAt = time.Now().Add(line.ForgetEvery)
	}
	b.mu.Unlock()
	if !due {
		return
	}
	b.start(func() {
		ctx, cancel := context.WithTimeout(b.ctx, forgetMost)
		defer cancel()
		stale, err := b.store.Forget(ctx, now.Add(-line.IdleFor).UnixMicro())
		for _, key := range stale {
			if err == nil && ctx.Err() == nil {
				_ = b.Settle(ctx, key) // a damaged one must not hold up the others
			}
		}
	})
}

// ended says why no call is served any more, or returns nil.
func (b *Backend) ended(ctx context.Context) error {
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// failed prefers the end of ctx to err, unless err says more than that.
func (b *Backend) failed(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, driver.ErrRefused) {
		return err
	}
	ended := cmp.Or(b.ended(ctx), driverutil.Ended(ctx))
	if ended != nil && (b.ctx.Err() != nil || !errors.Is(err, ended)) {
		return ended
	}
	return err
}
