package bubble_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/memlock"
)

// horizon is when everybody stops waiting: whoever gets there waited for nothing.
const horizon = 30 * time.Minute

// runner runs one program and writes down what happens.
type runner struct {
	p     program
	store *memlock.Store
	start time.Time

	mu     sync.Mutex
	events []history.Event
	faults []string            // what is wrong beside what the history shows
	broken map[string][]tokens // tokens that somebody broke, or tried to
	closed []history.Span      // when a lock-delay after a break may have kept a key closed
	all    [][2]time.Duration  // from when to when somebody was in LockAll
}

// tokens is the tokens of one claim.
type tokens struct{ first, last int64 }

// outcome is what came of a program.
type outcome struct {
	Faults []string // what is wrong
	Grants int
	Trace  []string // its history as text, in the order in which things happened
}

// run runs p in virtual time.
func run(t *testing.T, p program) outcome {
	var r *runner
	synctest.Test(t, func(*testing.T) {
		r = &runner{p: p, store: memlock.New(), start: time.Now(), broken: map[string][]tokens{}}
		r.run()
	})
	r.judge()
	o := outcome{Faults: r.faults}
	for _, e := range r.events {
		if e.Op == history.Believe {
			o.Grants++
		}
		o.Trace = append(o.Trace, fmt.Sprintf("%v claim %s handle %s", e, e.Claim, e.Handle))
	}
	return o
}

func (r *runner) wrong(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%v: ", time.Since(r.start))+fmt.Sprintf(format, args...))
}

func (r *runner) note(e history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = time.Since(r.start)
	r.events = append(r.events, e)
}

// process is a proc that runs.
type process struct {
	*runner
	proc
	name   string
	client *fencelock.Client
	net    *faulty.Backend
	ends   time.Time // when it is to end; zero before that
}

func (r *runner) run() {
	ctx, cancel := context.WithDeadline(context.Background(), r.start.Add(horizon))
	defer cancel()
	var work sync.WaitGroup
	var all []*process
	quiet := r.start // when the last outage has ended
	for i, q := range r.p.Procs {
		p := &process{runner: r, proc: q, name: fmt.Sprint("p", i)}
		line := &cable{Store: r.store, order: rand.New(rand.NewPCG(r.p.Order, uint64(i)))}
		for at, j := r.start, 0; j < len(q.Outages); j++ {
			from := at.Add(q.Outages[j].After)
			at = from.Add(q.Outages[j].For)
			line.outages = append(line.outages, [2]time.Time{from, at})
			if at.After(quiet) {
				quiet = at
			}
		}
		p.net = faulty.New(line, r.p.Faults+uint64(i), q.Net)
		p.client, _ = fencelock.New(p.net, &fencelock.Options{
			TTL: q.Lease, HandOff: q.HandOff, Owner: p.name,
			// Without chance, so that a run can be repeated; and no two processes ask in
			// the same moment.
			Backoff: func(n int, _ error) (time.Duration, bool) {
				apart := r.p.apart(time.Duration(17*i+1) * time.Microsecond)
				return min(10*time.Millisecond<<min(n-1, 7), time.Second) + apart, true
			},
		})
		all = append(all, p)
		if q.EndsAt > 0 {
			p.ends = r.start.Add(q.EndsAt + r.p.apart(time.Duration(101+i)*time.Nanosecond))
			work.Go(p.end)
		}
		for j, uses := range q.Workers {
			w := &worker{process: p, name: fmt.Sprintf("p%dw%d", i, j), odd: r.p.apart(time.Duration(1 + 10*i + j))}
			work.Go(func() {
				for k, u := range uses {
					w.use(ctx, k, u)
				}
			})
		}
	}
	work.Wait()
	if time.Since(r.start) >= horizon {
		r.wrong("somebody waited forever")
	}
	r.note(history.Event{Op: history.Look})
	time.Sleep(time.Until(quiet))
	// Nothing goes wrong any more. What was under way arrives, and the
	// Leaves that are due are sent: no claim may be left that only its lease would end.
	for _, p := range all {
		p.net.Set(faulty.Options{})
	}
	time.Sleep(1500 * time.Millisecond)
	for _, p := range all {
		begun := time.Now()
		p.client.Close()
		if d := time.Since(begun); d > 4*time.Second+time.Millisecond {
			r.wrong("%s: Close took %v", p.name, d)
		}
	}
	// A client that was closed while its network was out has not sent its Leaves.
	ended := map[string]bool{}
	for _, p := range all {
		ended[p.name] = p.EndsAt > 0 && !r.p.Calm
	}
	for l := range r.store.Lines(ctx, "") {
		for _, c := range l.Claims {
			if !c.Lingering && !ended[c.Owner] {
				r.wrong("a ghost is left in the line of %s: %+v", l.Key, c)
			}
		}
	}
	time.Sleep(20 * time.Second) // all leases run out, and all that lingers
	for l := range r.store.Lines(context.Background(), "") {
		r.wrong("claims are left in the line of %s: %+v", l.Key, l.Claims)
	}
}

// end ends the Client while its workers still use it.
func (p *process) end() {
	time.Sleep(time.Until(p.ends))
	begun := time.Now()
	limit := 4 * time.Second // for the store, and for hooks
	if p.Ends == shutsDown {
		limit += time.Second
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.client.Shutdown(ctx)
	} else {
		p.client.Close()
	}
	if d := time.Since(begun); d > limit+time.Millisecond {
		p.wrong("%s: its end took %v", p.name, d)
	}
}

// worker is a goroutine of a process.
type worker struct {
	*process
	name string
	odd  time.Duration // keeps what two workers do from falling into the same moment
}

func (w *worker) sleep(d time.Duration) { time.Sleep(d + w.odd*time.Microsecond) }

func (w *worker) use(parent context.Context, n int, u use) {
	w.sleep(u.After)
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if u.Cancel > 0 {
		defer time.AfterFunc(u.Cancel+w.odd*time.Nanosecond, cancel).Stop()
	}
	switch u.Verb {
	case breaks:
		w.breaks(ctx, u)
		return
	case looks:
		if _, err := w.client.Line(ctx, u.Key); err != nil && !w.excused(ctx, u, err) {
			w.wrong("%s: line: %v", w.name, err)
		}
		return
	}
	held, err := w.take(ctx, u, fmt.Sprintf("%s/%d", w.name, n))
	if err != nil {
		if !w.excused(ctx, u, err) {
			w.wrong("%s: %s: %v", w.name, u, err)
		}
		return
	}
	w.hold(ctx, held, u)
	if u.Dead {
		cancel()
	}
	for i := len(held) - 1; i >= 0; i-- {
		w.release(ctx, held[i], u)
	}
}

// holding is one lease and its claim in the history.
type holding struct {
	told  sync.Mutex // orders what the loss and a re-entry at the same moment write down
	lease *fencelock.Lease
	event history.Event
	inner *fencelock.Lease
	lost  error // as its holder knows
}

// take calls the method of u, and writes down when it was called and what it answered.
func (w *worker) take(ctx context.Context, u use, claim string) ([]*holding, error) {
	e := history.Event{Process: w.process.name, Key: u.Key, Claim: claim, Handle: "1"}
	var opts []fencelock.Option
	switch u.Times {
	case ttl:
		opts = append(opts, fencelock.TTL(u.Length))
	case noRenewal:
		opts = append(opts, fencelock.NoRenewal(), fencelock.TTL(u.Length))
	case maxHold:
		opts = append(opts, fencelock.MaxHold(u.Length))
	case minHold:
		opts = append(opts, fencelock.MinHold(u.Length))
	}
	if u.Odd {
		opts = append(opts, fencelock.Note("odd"))
	}
	if u.Wait >= 0 {
		opts = append(opts, fencelock.Wait(u.Wait+w.odd*time.Nanosecond))
	}
	switch u.Verb {
	case lockAll:
		return w.takeAll(ctx, u, e, opts)
	case tryRLock, tryAcquire:
		opts = append(opts, fencelock.Wait(0))
	}
	call := func() (*fencelock.Lease, error) { return w.client.Lock(ctx, u.Key, opts...) }
	switch u.Verb {
	case tryLock:
		call = func() (*fencelock.Lease, error) { return w.client.TryLock(ctx, u.Key, opts...) }
	case rlock, tryRLock:
		e.Kind = history.Shared
		call = func() (*fencelock.Lease, error) { return w.client.RLock(ctx, u.Key, opts...) }
	case acquire, tryAcquire:
		e.Kind, e.Weight, e.Size = history.Permit, u.Weight, u.Size
		call = func() (*fencelock.Lease, error) { return w.client.Acquire(ctx, u.Key, u.Weight, u.Size, opts...) }
	}
	e.Op = history.Enter
	w.note(e)
	begun := time.Now()
	l, err := call()
	w.inTime(ctx, u, begun, err)
	e.Op = history.Refused
	if err == nil && l.Err() == nil {
		e.Op, e.Token = history.Believe, int64(l.Token())
	}
	w.note(e)
	if err != nil {
		return nil, err
	}
	return []*holding{w.watch(l, e, l.Err())}, nil
}

// takeAll takes both locks at once. While it waits for the first it is not in the
// line of the second, and while it waits for the second it holds the first: so its waiting
// is not written down, and others who wait meanwhile are not missed.
func (w *worker) takeAll(ctx context.Context, u use, e history.Event, opts []fencelock.Option) ([]*holding, error) {
	begun := time.Now()
	m, err := w.client.LockAll(ctx, []string{keyB, keyA}, opts...)
	w.inTime(ctx, u, begun, err)
	until := time.Since(w.start)
	if u.Times == minHold {
		until += u.Length // what it gives back, because it cannot have the other, lingers
	}
	w.mu.Lock()
	w.all = append(w.all, [2]time.Duration{begun.Sub(w.start), until})
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var held []*holding
	for _, l := range m {
		e := e
		e.Key, e.Claim = l.Key(), e.Claim+l.Key()
		e.Op = history.Enter
		w.note(e)
		e.Op = history.Refused
		lost := l.Err()
		if lost == nil {
			e.Op, e.Token = history.Believe, int64(l.Token())
		}
		w.note(e)
		held = append(held, w.watch(l, e, lost))
	}
	return held, nil
}

// watch writes down when the belief in l ends, whatever its holder is busy with then. A
// belief ends with its context, also where the lease does not.
func (w *worker) watch(l *fencelock.Lease, e history.Event, lost error) *holding {
	h := &holding{lease: l, event: e, lost: lost}
	e.Op = history.Loss
	context.AfterFunc(l.Context(), func() {
		h.told.Lock()
		defer h.told.Unlock()
		if !errors.Is(l.Err(), fencelock.ErrReleased) {
			w.note(e)
		}
	})
	return h
}

// inTime checks that a call did not outlive what bounds it.
func (w *worker) inTime(ctx context.Context, u use, begun time.Time, err error) {
	const tidy = 2*time.Second + time.Millisecond // a call that gives up takes its claim along
	took := time.Since(begun)
	switch {
	case u.Cancel > 0 && errors.Is(err, context.Canceled) && u.Wait < 0 && took > u.Cancel+time.Millisecond,
		u.Cancel > 0 && ctx.Err() != nil && took > u.Cancel+tidy:
		w.wrong("%s: %s: returned %v after its start, and its context had ended", w.name, u, took)
	case u.Wait >= 0 && took > u.Wait+tidy:
		w.wrong("%s: %s: returned after %v", w.name, u, took)
	case u.Verb.try() && took > 2*w.Lease+tidy:
		w.wrong("%s: %s: a try took %v", w.name, u, took)
	case !w.ends.IsZero() && time.Since(w.ends) > tidy && time.Since(w.ends) < took:
		w.wrong("%s: %s: returned %v after the end of its Client", w.name, u, time.Since(w.ends))
	}
}

// excused reports whether err is an answer that u had to reckon with.
func (w *worker) excused(ctx context.Context, u use, err error) bool {
	ended := !w.ends.IsZero() && !time.Now().Before(w.ends)
	switch {
	case u.Verb == lockAll && errors.Is(err, context.Canceled):
		return true // what it had was lost while it waited for the other
	case ended && (u.Verb == breaks || u.Verb == looks):
		return true
	case errors.Is(err, fencelock.ErrUnavailable):
		// A Lock that may wait as long as it likes outlasts every fault.
		return !w.p.Calm && (u.Wait >= 0 || ctx.Err() != nil || u.Verb.try() || u.Verb == breaks || u.Verb == looks) ||
			ctx.Err() != nil || u.Wait >= 0
	case errors.Is(err, fencelock.ErrNotAcquired):
		return u.Wait >= 0 || ctx.Err() != nil || u.Verb.try()
	case errors.Is(err, fencelock.ErrClosed):
		return ended
	case errors.Is(err, fencelock.ErrKind):
		return u.Key == keyMixed
	case errors.Is(err, fencelock.ErrBroken):
		if u.Verb == lockAll {
			return w.breaksSome(keyA) || w.breaksSome(keyB)
		}
		return w.breaksSome(u.Key) // an operator broke the waiting claim
	}
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

func (w *worker) breaksSome(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken[key]) > 0
}

// breaks ends the first claim of a line.
func (w *worker) breaks(ctx context.Context, u use) {
	line, err := w.client.Line(ctx, u.Key)
	if err != nil || len(line.Claims) == 0 {
		return
	}
	c := line.Claims[len(line.Claims)/2]
	w.mu.Lock()
	last := c.Token
	for c.HasToken(last + 1) {
		last++
	}
	w.broken[u.Key] = append(w.broken[u.Key], tokens{int64(c.Token), int64(last)})
	w.mu.Unlock()
	delay := min(u.Hold, w.Lease)
	begun := time.Since(w.start)
	err = w.client.Break(ctx, u.Key, c.Token, fencelock.Break{Reason: "tidied", Delay: cmp.Or(delay, -1)})
	if delay > 0 && !errors.Is(err, fencelock.ErrNoClaim) {
		w.mu.Lock()
		w.closed = append(w.closed, history.Span{Key: u.Key, From: begun, To: time.Since(w.start) + delay})
		w.mu.Unlock()
	}
	if err != nil && !errors.Is(err, fencelock.ErrNoClaim) && !w.excused(ctx, u, err) {
		w.wrong("%s: break: %v", w.name, err)
	}
}

// hold keeps what it holds for its time, or until the context ends.
func (w *worker) hold(ctx context.Context, held []*holding, u use) {
	l := held[len(held)-1].lease // its Context ends with any of them
	if u.Inner != nothing && l.Err() == nil && l.Context().Err() == nil {
		w.inside(held[0], u)
	}
	parts := []time.Duration{u.Hold}
	if u.Renew {
		parts = []time.Duration{u.Hold / 2, u.Hold / 2}
	}
	for i, d := range parts {
		if i > 0 {
			begun := time.Now()
			err := l.Renew(ctx)
			if d := time.Since(begun); d > max(w.Lease, u.Length)/3+time.Millisecond {
				w.wrong("%s: Renew took %v", w.name, d)
			}
			ok := err == nil || errors.Is(err, fencelock.ErrLost) || errors.Is(err, fencelock.ErrUnavailable) ||
				errors.Is(err, fencelock.ErrClosed) // by a Close while it was under way
			if !ok {
				w.wrong("%s: renew: %v", w.name, err)
			}
		}
		select {
		case <-l.Context().Done():
		case <-time.After(max(d+w.odd*time.Microsecond, 1)): // see clock.Shortest
		}
		for _, h := range held {
			w.look(h)
		}
	}
}

// look writes down a loss when it is first seen.
func (w *worker) look(h *holding) {
	err := h.lease.Err()
	switch {
	case h.lost != nil && err == nil:
		w.wrong("%s: a lease that was lost is held again: %v", w.name, h.lost)
	case h.lost == nil && err != nil:
		h.lost = err
		e := h.event
		e.Op = history.Loss
		w.note(e)
		if !errors.Is(err, fencelock.ErrLost) {
			w.wrong("%s: nobody released it, and it ended with %v", w.name, err)
		}
		if c := context.Cause(h.lease.Context()); h.lease.Context().Err() == nil || c == nil {
			w.wrong("%s: a lost lease has a context that has not ended", w.name)
		}
	}
}

// inside does what is to be done under the context of a lease.
func (w *worker) inside(h *holding, u use) {
	call := w.client.Lock
	switch {
	case u.Verb == rlock || u.Verb == tryRLock:
		call = w.client.RLock
	case u.Size > 0:
		call = func(ctx context.Context, _ string, opts ...fencelock.Option) (*fencelock.Lease, error) {
			return w.client.Acquire(ctx, u.Key, 1, u.Size, opts...)
		}
	}
	ctx := h.lease.Context()
	if u.Inner == deadlocks {
		in, err := call(ctx, u.Key)
		if err == nil {
			w.wrong("%s: what waits for itself was granted", w.name)
			in.Release(ctx)
		} else if !errors.Is(err, fencelock.ErrDeadlock) && h.lease.Context().Err() == nil {
			w.wrong("%s: it would wait for itself, and gets %v", w.name, err)
		}
		return
	}
	in, err := call(ctx, u.Key, fencelock.Reentrant())
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, fencelock.ErrClosed) {
			w.wrong("%s: re-entry: %v", w.name, err)
		}
		return
	}
	if in.Token() != h.lease.Token() {
		w.wrong("%s: a re-entry has token %v, its grant %v", w.name, in.Token(), h.lease.Token())
	}
	e := h.event
	e.Handle = "2"
	h.told.Lock()
	if in.Err() == nil && ctx.Err() == nil {
		e.Op = history.Believe
		w.note(e)
	}
	h.told.Unlock()
	if u.Inner == outlives {
		h.inner = in
		return
	}
	w.sleep(u.Hold / 4)
	w.look(h)
	if in.Err() == nil {
		e.Op = history.Release
		w.note(e)
	}
	if err := in.Release(ctx); err != nil && !errors.Is(err, fencelock.ErrLost) {
		w.wrong("%s: release of a re-entry: %v", w.name, err)
	}
}

// release gives back what h holds, the last handle last, and checks what that answers.
func (w *worker) release(ctx context.Context, h *holding, u use) {
	w.look(h)
	w.releaseOne(ctx, h, h.lease, "1", u, h.inner == nil)
	if h.inner == nil {
		return
	}
	select {
	case <-h.inner.Context().Done():
	case <-time.After(max(u.Hold/4, 1)):
	}
	if h.inner.Err() != nil && h.lost == nil {
		h.lost = h.inner.Err()
		e := h.event
		e.Op = history.Loss
		w.note(e)
	}
	w.releaseOne(ctx, h, h.inner, "2", u, true)
}

func (w *worker) releaseOne(ctx context.Context, h *holding, l *fencelock.Lease, handle string, u use, last bool) {
	e := h.event
	e.Handle = handle
	if h.lost == nil {
		e.Op = history.Release
		w.note(e)
	}
	begun := time.Now()
	left := time.Until(l.Deadline()) // so long Release asks the store
	err := l.Release(ctx)
	if took := time.Since(begun); took > 2*time.Second+time.Millisecond {
		w.wrong("%s: Release took %v", w.name, took)
	}
	switch {
	case err == nil:
		if h.lost != nil {
			w.wrong("%s: a lease that was lost was released as if it had not been: %v", w.name, h.lost)
		}
		if last && u.Times != minHold {
			e.Op = history.Left
			w.note(e)
		}
	case errors.Is(err, fencelock.ErrLost):
	case errors.Is(err, fencelock.ErrUnavailable) && (!w.p.Calm || left < 100*time.Millisecond):
	default:
		w.wrong("%s: release: %v", w.name, err)
	}
	if l.Err() == nil || h.lost == nil && !errors.Is(l.Err(), fencelock.ErrLost) && !errors.Is(l.Err(), fencelock.ErrReleased) {
		w.wrong("%s: after its release a lease says %v", w.name, l.Err())
	}
	if again := l.Release(ctx); again != err {
		w.wrong("%s: Release answered %v, and then %v", w.name, err, again)
	}
}

// judge looks for breaches in the history.
func (r *runner) judge() {
	found, err := history.Check(r.events, r.limits())
	if err != nil {
		r.faults = append(r.faults, err.Error())
	}
	for _, v := range found {
		if r.excusedByBreak(v) || r.excusedByLockAll(v) {
			continue
		}
		r.faults = append(r.faults, v.String())
	}
}

// limits are how long a waiter may go without a grant.
func (r *runner) limits() history.Options {
	lease := time.Duration(0)
	for _, p := range r.p.Procs {
		lease = max(lease, p.Lease)
	}
	o := history.Options{
		// A waiter looks again after a second; a line that has changed behind it, and a
		// claim that has just lost its place, cost it one more look.
		Wake: 2*time.Second + 500*time.Millisecond,
		// The longest claim lasts two leases, or lingers for one.
		Stuck:   2*lease + 2*time.Second + 500*time.Millisecond,
		Outages: r.closed,
	}
	if !r.p.Calm {
		// Networks go away for two leases, three times, and every fourth call fails.
		o.Wake, o.Stuck = 60*time.Second, 60*time.Second
	}
	if slices.ContainsFunc(r.p.Procs, proc.slow) {
		o.Wake, o.Stuck = 0, 0
	}
	return o
}

// excusedByBreak: whoever was broken may believe a little longer, until it hears of it; or
// even begin to, if the answer that granted it was on its way.
func (r *runner) excusedByBreak(v history.Violation) bool {
	if v.Rule == history.Stuck || v.Rule == history.WakeUp {
		return false
	}
	for _, s := range r.broken[v.Key] {
		for _, e := range []history.Event{v.First, v.Second} {
			if e.Token >= s.first && e.Token <= s.last {
				return true
			}
		}
	}
	return false
}

// excusedByLockAll: what somebody in LockAll holds, others wait for.
func (r *runner) excusedByLockAll(v history.Violation) bool {
	if v.Rule != history.Stuck && v.Rule != history.WakeUp || v.Key != keyA && v.Key != keyB {
		return false
	}
	return slices.ContainsFunc(r.all, func(in [2]time.Duration) bool { return in[0] < v.Second.At && in[1] > v.First.At })
}
