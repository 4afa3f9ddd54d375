package swaplock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/line"
)

// Backend keeps locks in a Store: it is a driver.Backend, with all that package driver promises. Its methods may be
// called from many goroutines at once. Their errors are those of the driver: driver.ErrRefused says that nothing
// happened, driver.Gone that the claim is not in line, driver.ErrClosed that Close was called.
//
// A step is a Read and a Swap, and both again after each swap of others that came between. Steps of one key that
// come while another is under way share the next one.
type Backend struct {
	driverutil.Ownership
	store     Store
	arriver   Arriver   // the store, if it is one
	messenger Messenger // the store, if it is one
	info      driver.Info
	grace     time.Duration   // see Traits
	node      string          // see Traits
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup // the goroutines that it has started
	claims    claims

	mu        sync.Mutex
	queues    map[string][]*job    // the steps that wait, of keys of which one is under way
	empty     map[string]*State    // see leaves
	lateUntil map[string]time.Time // keys whose swaps come too late, for how long that is believed
	watching  bool
	forgetAt  time.Time // when what is old is forgotten next
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
	_ driver.Detacher = (*Backend)(nil)
	_ driver.Alarm    = (*Backend)(nil)
)

// New returns a Backend that keeps its lines in store. It sends no request.
func New(store Store) *Backend {
	traits := store.Traits()
	b := &Backend{store: store, grace: traits.Grace, node: traits.Node, info: driver.Info{
		Name: traits.Name, Namespace: traits.Namespace, Fair: true, Linger: true, After: true,
		MinTTL: max(traits.MinTTL, line.MinTTL), MaxTTL: line.MaxTTL,
	}}
	b.claims.began = time.Now()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.arriver, _ = store.(Arriver)
	b.messenger, _ = store.(Messenger)
	b.queues, b.lateUntil = make(map[string][]*job), make(map[string]time.Time)
	b.empty = make(map[string]*State)
	b.forgetAt = time.Now().Add(rand.N(line.ForgetEvery)) // also a process that lives for a second may have its turn
	return b
}

// Open takes the Backend over for one Client. It sends no request, and fails if another Client has it.
func (b *Backend) Open() error { return b.Take(nil) }

// Info says that a Backend keeps every law of a line.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends what the Backend has started. The claims stay.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.cancel() // nothing starts from now on
	b.mu.Unlock()
	b.running.Wait()
	return nil
}

// Leave takes the claim of t out of its line and wakes everyone that this makes granted. It costs one request if the
// line was seen last by this process and nobody has written it since, or if the claim waits as an arrival; else a step.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	missed := false // the claim was gone before the message came
	leave := func(r *reading, s *line.Step) error {
		if err := r.missing(t.ID); err != nil {
			return err
		}
		missed = missed || r.missed[t.ID]
		lasting := t
		lasting.TTL += b.grace // of a tombstone
		err := r.Leave(s, &lasting, e)
		if r.appended && (r.left[t.ID] || !missed && err == error(driver.GoneError{})) {
			return nil // it has left by the message, maybe under notice
		}
		return err
	}
	ref := driverutil.Ref(t.Key, t.ID)
	b.claims.leaving(ref, true)
	err := b.withdraw(ctx, &t, e)
	if errors.Is(err, errPart) {
		err = b.leaveKnown(ctx, &t, e, leave)
	}
	if errors.Is(err, errPart) {
		var other *Arrival
		if e == (driver.Exit{}) {
			other = note(t.ID, message{Leave: text(t.ID), Token: t.Token})
		}
		j := &job{ctx: ctx, f: leave, other: other, id: t.ID}
		// A holder alone seldom has a rival: only its own swap is sure to wake the next one soon.
		if driverutil.Exclusive(&t.Claim) {
			j.after = patience
		}
		err = b.do(t.Key, j)
	}
	if err == nil || driver.Gone(err) {
		b.claims.leave(ref)
	}
	b.claims.leaving(ref, false)
	return err
}

// withdraw takes the claim of t out of the arrivals, without a read. It returns errPart if it may not be there, or may
// be granted.
func (b *Backend) withdraw(ctx context.Context, t *driver.Ticket, e driver.Exit) error {
	a := b.claims.arrived(driverutil.Ref(t.Key, t.ID))
	if a == nil || e.Tombstone || e.Mark != "" || e.Linger != 0 {
		return errPart
	}
	if err := b.ended(ctx); err != nil {
		return err
	}
	done, err := b.arriver.Withdraw(ctx, t.Key, a)
	if err == nil && !done {
		return errPart
	}
	return b.failed(ctx, err)
}

// knownFor is how long others are unlikely to write a line in which they wait.
const knownFor = time.Second

// leaveKnown takes the claim of t out of a line that nobody has written since it was seen last, without a read. It
// returns errPart if that is not so.
func (b *Backend) leaveKnown(ctx context.Context, t *driver.Ticket, e driver.Exit, leave stepFunc) error {
	st := b.claims.line(driverutil.Ref(t.Key, t.ID))
	if st == nil || e.Tombstone || e.IfWaiting || e.Linger != 0 || !st.alone && time.Since(st.sent) > knownFor {
		return errPart
	}
	if st.arrivedAlone(t.ID) && e.Mark == "" && !b.claims.others(t.Key) {
		return b.leaveAlone(ctx, t, st)
	}
	now := *st
	if !st.sent.IsZero() {
		now.wall = st.read.Add(time.Since(st.sent)) // what ends by then is seen by the store
	}
	return b.once(ctx, t.Key, &now, leave)
}

// arrivedAlone reports whether there is nothing in line but the claim with id, which has arrived.
func (st *State) arrivedAlone(id string) bool {
	return st.alone && st.Holder == id && len(st.Document) == 0 && len(st.Arrivals) == 1
}

// leaveAlone is the step by which the claim of t leaves a line in which it has arrived and nobody else is, in this
// process or in the store: nothing is left but the counter and the mark.
func (b *Backend) leaveAlone(ctx context.Context, t *driver.Ticket, st *State) error {
	if err := b.ended(ctx); err != nil {
		return err
	}
	version, err := b.store.Swap(ctx, t.Key, &Change{
		If: st.Version, IfLast: st.Last, Before: st.Expires, Arrivals: 1,
		Content: Content{Last: st.Last, Mark: st.Mark, MarkedBy: st.MarkedBy},
	})
	switch {
	case err != nil:
		return b.failed(ctx, err)
	case version == "":
		return errPart
	}
	b.forget(st.Now)
	return nil
}

// once runs f on a line that was seen before, without a read. It returns errPart if that is nil, or not
// the line any more.
func (b *Backend) once(ctx context.Context, key string, seen *State, f stepFunc) error {
	if seen == nil {
		return errPart
	}
	if err := b.ended(ctx); err != nil {
		return err
	}
	a := batch{b, key, []*job{{ctx: ctx, f: f}}}
	switch done, err := a.swap(ctx, *seen); {
	case err != nil:
		return err
	case !done:
		return errPart
	}
	return a.jobs[0].err
}

const (
	// leftFor is how long a line that was left empty is believed to be so: the clocks of the store and of the
	// process drift apart.
	leftFor = 10 * time.Second
	// mostLeft is how many such lines are kept.
	mostLeft = 4096
)

// leaves keeps st, if it is of an empty line, for the next claim of this process to enter it without a read.
func (b *Backend) leaves(key string, st *State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.empty, key)
	if b.arriver == nil && len(st.Document)+len(st.Holder)+len(st.Arrivals) == 0 && !st.sent.IsZero() {
		if len(b.empty) >= mostLeft {
			clear(b.empty)
		}
		b.empty[key] = st
	}
}

// left takes what leaves has kept, as of now. Only an Enter may go by it: its swap fails if others have been there
// since.
func (b *Backend) left(key string) *State {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.empty[key]
	delete(b.empty, key)
	if st == nil || time.Since(st.sent) > leftFor || b.queues[key] != nil {
		return nil
	}
	now := *st
	now.Now = st.read.Add(time.Since(st.sent)) // later than the store's clock, by a round trip at most
	return &now
}

// Reserve lengthens the span of t if that claim is alone in line and nobody has drawn a token since. It costs a step.
func (b *Backend) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if span < 1 || span > limit.Span {
		return false, driver.Permanent(fmt.Errorf(
			"%s: a claim on %.80q reserves 1 to %d tokens, not %d", b.info.Name, t.Key, limit.Span, span))

	}
	var done bool
	err := b.step(ctx, t.Key, func(r *reading, _ *line.Step) error {
		done = r.Reserve(&t, span)
		return nil
	})
	return err == nil && done, err
}

// Break ends the claim of key whose span holds token, at once or after a delay. It costs a step.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return b.step(ctx, key, func(r *reading, s *line.Step) error {
		if r.beyond(token) {
			return errPart
		}
		_, err := r.Break(s, token, how)
		return err
	})
}

// Adopt gives the claim of t to by, with a full lease. It costs a step, and a Renew if it was done before.
func (b *Backend) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	for {
		var got driver.Ticket
		var seen *reading
		var found bool // by an earlier Adopt, with a record
		err := b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
			c, err := r.Adopt(s, &t, &by) // a granted claim is not among arrivals that were not read
			if err == nil {
				c.Node = b.node
				seen, got = r, r.Ticket(s, c)
				found = r.settle(c) == inRecord
			}
			return err
		})
		if err != nil {
			return driver.Ticket{}, err
		}
		alive := []bool{!found}
		if found {
			alive, err = b.store.Renew(ctx, []Lease{{t.Key, by.ID, by.TTL}})
		}
		if err != nil {
			return got, b.failed(ctx, err)
		}
		if alive[0] {
			o, _ := b.claims.enter(driverutil.Ref(t.Key, by.ID))
			b.claims.enters(o, &got, &seen.State, seen.quiet())
			return got, nil
		}
	}
}

// Detach starts the lease of t again, as Renew does. It takes nothing else: a claim belongs to no process.
func (b *Backend) Detach(ctx context.Context, t driver.Ticket) error {
	defer b.claims.leave(driverutil.Ref(t.Key, t.ID))
	return driverutil.InLine(b.Renew(ctx, []driver.Ticket{t})[0])
}

// Settle removes claims of key that have ended, and grants the lock to those that come next. A waiter does that by
// itself within a second of the end of a lease; it is for a store that knows of an end before. It costs a step, or a
// Read if there is nothing to do.
func (b *Backend) Settle(ctx context.Context, key string) error {
	return b.step(ctx, key, func(*reading, *line.Step) error { return nil })
}

// soon is when those who wait look at a line in which a lease may end before its time.
const soon = 100 * time.Millisecond

// Lend gives the granted claim of t a record of its own, with the lease of t, and returns a version of its line in
// which it has the grant. It is for a store in which something other than time may end a record, such as the
// transaction of sqllock.Tx; waiters look ten times a second from then on. It costs a step, and a Renew if the
// record was there.
func (b *Backend) Lend(ctx context.Context, t driver.Ticket) (version string, err error) {
	var seen *reading
	var found bool // in a record
	err = b.step(ctx, t.Key, func(r *reading, s *line.Step) error {
		if err := r.missing(t.ID); err != nil {
			return err
		}
		c := r.Find(t.ID)
		if c == nil || !c.Granted {
			return r.Gone(s, t.ID)
		}
		if seen, found = r, r.place(c) == inRecord; !found {
			r.lend(s, c, t.TTL)
		}
		r.Soon = soon
		return nil
	})
	if err != nil {
		return "", err
	}
	if found {
		alive, err := b.store.Renew(ctx, []Lease{{t.Key, t.ID, t.TTL}})
		if err == nil && !alive[0] {
			err = driver.GoneError{}
		}
		if err != nil {
			return "", b.failed(ctx, err)
		}
	}
	return seen.Version, nil
}

// Claims returns the IDs of the claims in the line of key, in order, also of those whose leases have ended. It costs a
// Read. Line describes claims to people, without their IDs.
func (b *Backend) Claims(ctx context.Context, key string) (ids []string, err error) {
	st, err := b.store.Read(ctx, key, -1)
	if err != nil {
		return nil, b.failed(ctx, err)
	}
	r, err := open(key, st)
	if err != nil {
		return nil, err
	}
	for _, c := range r.Claims {
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// Line describes the line of key, also when nobody is in it. It costs a Read.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ended(ctx); err != nil {
		return driver.Line{}, err
	}
	st, err := b.store.Read(ctx, key, -1)
	if err != nil {
		return driver.Line{}, b.failed(ctx, err)
	}
	return b.show(key, st)
}

func (b *Backend) show(key string, st State) (driver.Line, error) {
	r, err := open(key, st)
	if err != nil {
		return driver.Line{}, err
	}
	s := &line.Step{Wall: st.Now, Mono: sinceEpoch(st.Now)}
	b.purge(r, s)
	return r.Describe(s, key), nil
}

// Lines yields the lines with at least one claim whose keys begin with prefix, by one List.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ended(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		for k, err := range b.store.List(ctx, prefix) {
			var l driver.Line
			if err = b.failed(ctx, err); err == nil {
				l, err = b.show(k.Key, k.State)
			}
			if err == nil && len(l.Claims) == 0 {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}
