package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Options change what New does by default. Nil and the zero value are ready.
type Options struct {
	// Names is what errors call the members, in their order. A name that is missing
	// or empty is the kind of the member's store.
	Names []string
}

// Backend keeps locks on a majority of its members. Its methods may be called from
// many goroutines at once. Each sends its request to all members at the same time
// and returns when a majority has answered. The rest finishes in the background.
type Backend struct {
	nodes    []*node
	majority int
	spare    int // how many nodes a majority can do without
	info     driver.Info
	invalid  error // why no call can succeed
	owner    driverutil.Ownership
	now      func() time.Time // the clock that ballots come from

	closing      context.Context // ends when Close begins; callers stop waiting
	beginClosing context.CancelFunc
	ctx          context.Context // the parent of every call to a member
	cancelCalls  context.CancelFunc
	shared       atomic.Pointer[sharedContext]
	running      atomic.Int64 // calls and requests under way
	work         chan func()  // to goroutines that wait for work
	idle         atomic.Int32 // such goroutines
	claims       claimTable

	membersClosed sync.Once
}

var (
	_ driver.Backend = (*Backend)(nil)
	_ driver.Alarm   = (*Backend)(nil)
)

// maxNodes is how many members a quorum may have.
const maxNodes = 9

// minTTL is the shortest lease that is of use once a majority has answered.
const minTTL = 100 * time.Millisecond

// New returns a quorum of members: 3, 5, 7 or 9 independent Redis servers, each
// opened with redislock.Options.Member. Three survive the loss of one, five of two. All
// programs name the same members, in any order. New sends nothing; Open reports invalid members.
//
// The Backend owns its members: Close closes them.
func New(members []driver.Backend, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	n := len(members)
	b := &Backend{majority: len(members)/2 + 1, now: time.Now, work: make(chan func())}
	b.claims.byRef = map[driverutil.ClaimRef]*claim{}
	b.spare = n - b.majority
	b.closing, b.beginClosing = context.WithCancel(context.Background())
	b.ctx, b.cancelCalls = context.WithCancel(context.Background())
	b.info = driver.Info{Name: "quorum", MinTTL: minTTL}
	for i, m := range members {
		name := fmt.Sprintf("node %d", i+1)
		if i < len(o.Names) && o.Names[i] != "" {
			name += " (" + o.Names[i] + ")"
		} else if m != nil {
			name += " (" + m.Info().Name + ")"
		}
		if slices.ContainsFunc(members[:i], func(other driver.Backend) bool { return same(m, other) }) {
			b.refuse("%s of the quorum is another member too: "+
				"a majority of votes would not be a majority of stores", name)
		}
		b.addNode(m, name)
	}
	switch {
	case n < 3:
		b.refuse("a quorum needs at least 3 members, not %d: with fewer, none may fail; use the store by itself", n)
	case n%2 == 0:
		b.refuse("a quorum has an odd number of members, not %d: "+
			"the last one makes the majority larger and survives no further loss", n)
	case n > maxNodes:
		b.refuse("a quorum has at most %d members, not %d: each lock asks all of them", maxNodes, n)
	}
	return b
}

// addNode adds a member and narrows the limits of a lease to the limits of the member.
func (b *Backend) addNode(m driver.Backend, name string) {
	member, ok := m.(ballot.Member)
	b.nodes = append(b.nodes, newNode(member, name))
	if m == nil {
		b.refuse("%s of the quorum is nil", name)
		return
	}
	info := m.Info()
	switch {
	case !ok || !member.IsMember():
		b.refuse("%s of the quorum takes no ballots: members are Redis servers, opened with "+
			"redislock.Options.Member", name)
	case info.SharedLease:
		b.refuse("%s of the quorum cannot be a member: it needs a lease for each claim", name)
	}
	b.info.MinTTL = max(b.info.MinTTL, info.MinTTL)
	if b.info.MaxTTL == 0 || info.MaxTTL < b.info.MaxTTL {
		b.info.MaxTTL = info.MaxTTL
	}
}

// refuse makes every later call fail.
func (b *Backend) refuse(format string, args ...any) {
	b.invalid = driver.Permanent(fmt.Errorf(format, args...))
}

// same reports whether two members are one value.
func same(a, b driver.Backend) bool {
	return a != nil && b != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// Open takes the quorum and its members over for one Client, and says which member or
// option is bad.
func (b *Backend) Open() error {
	if b.invalid != nil {
		return b.invalid
	}
	if err := b.owner.Take(nil); err != nil {
		return err
	}
	for _, n := range b.nodes {
		if err := n.Open(); err != nil {
			return fmt.Errorf("%s of the quorum: %w", n.name, err)
		}
	}
	return nil
}

// Info says what a quorum promises: fencing tokens, and neither a line nor
// semaphores nor marks. A lease is at most the MaxTTL of the members.
func (b *Backend) Info() driver.Info { return b.info }

// Initialise ends the quarantine of all members. The caller knows that no lock and
// no token is left from before: it is for a new quorum. It returns the errors of the
// members that could not be reached, and may be called again. Members that are one store are an
// error, as Distinct says, and nothing is changed.
func (b *Backend) Initialise(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	return b.initialise(ctx, func(n *node) error { return n.Initialise(ctx) })
}

// ChangeMembership gives all members the Membership that they were opened with, in place of
// the one that they have agreed on, and ends their quarantine. All programs of the quorum have
// stopped, and no lock is held: the caller knows that, as for Initialise. It returns the
// errors of the members that could not be reached, and may be called again. Redis members can
// do it.
func (b *Backend) ChangeMembership(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	return b.initialise(ctx, func(n *node) error {
		member, ok := n.Member.(interface{ ChangeMembership(context.Context) error })
		if !ok {
			return errNoChange
		}
		return member.ChangeMembership(ctx)
	})
}

// initialise calls f for all members, unless two of them are one store.
func (b *Backend) initialise(ctx context.Context, f func(n *node) error) error {
	if err := b.Distinct(ctx); err != nil {
		return err
	}
	acks := b.ask(func(_ int, n *node) error { return f(n) })
	errs := make([]error, len(b.nodes))
	for range b.nodes {
		if a := <-acks; a.err != nil {
			errs[a.node] = fmt.Errorf("%s: %w", b.nodes[a.node].name, a.err)
		}
	}
	return errors.Join(errs...)
}

// Settle waits until nothing runs in the background, or ctx ends. It is for code that
// looks at the members themselves, such as a test: a call returns at the majority, and
// the last member may not have seen it yet.
func (b *Backend) Settle(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.running.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// begin starts a public call. Unless it fails, done ends the call.
func (b *Backend) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.invalid != nil {
		return b.invalid
	}
	b.running.Add(1) // before the look at closing: Close begins that first, and then waits
	if b.closing.Err() != nil {
		b.done()
		return driver.ErrClosed
	}
	return nil
}

func (b *Backend) done() { b.running.Add(-1) }

// run calls f on a goroutine: one that waits for work, or a new one. The caller is a public
// call, or was run itself.
func (b *Backend) run(f func()) {
	b.running.Add(1)
	select {
	case b.work <- f:
	default:
		go b.runMore(f)
	}
}

// maxIdle is how many goroutines wait for work at most. The stack of a new goroutine grows each
// time that it asks a store. Without those that wait, a free lock on five servers takes a tenth
// longer.
const maxIdle = 32

// runMore calls f, and then what run hands to it, until enough others wait or Close.
func (b *Backend) runMore(f func()) {
	for {
		f()
		b.done()
		if b.idle.Add(1) > maxIdle {
			b.idle.Add(-1)
			return
		}
		select {
		case f = <-b.work:
			b.idle.Add(-1)
		case <-b.ctx.Done():
			return
		}
	}
}

// closeGrace is how long Close waits for background work before it cancels the rest. What
// is canceled has the rest of half a second to end.
const closeGrace = 490 * time.Millisecond

// Close ends the background work, after half a second at most, and closes the members.
// It leaves claims alone. A node that has not confirmed a Leave by then may keep that
// claim until its lease ends. Settle before Close waits longer.
func (b *Backend) Close() error {
	b.beginClosing()
	grace, cancel := context.WithTimeout(b.ctx, closeGrace)
	defer cancel()
	_ = b.Settle(grace)
	b.cancelCalls()
	_ = b.Settle(context.Background())
	var errs []error
	b.membersClosed.Do(func() {
		for _, n := range b.nodes {
			if n.Member != nil {
				errs = append(errs, n.Close())
			}
		}
	})
	return errors.Join(errs...)
}

// validity is how long a lease of length d is believed, counted from its sending. It
// allows a hundredth and two milliseconds for clocks that drift, as the core does.
func validity(d time.Duration) time.Duration { return d - d/100 - 2*time.Millisecond }

// callTimeout bounds one call to a member. A slower node is of no use to a caller that
// waits for a majority.
const callTimeout = 5 * time.Second

// sharedContext is the context of the calls that begin before until.
type sharedContext struct {
	ctx    context.Context
	cancel context.CancelFunc // not called: the context ends by itself, after its calls
	until  time.Time
}

// callContext returns the context of one call to a member. The caller's context does not
// end the call: a request that was sent is waited for in the background, so its outcome
// becomes known.
//
// Calls that begin within half a second of each other share a context and have half a
// second more. A context and a timer for each call would cost a tenth of a free lock.
func (b *Backend) callContext() context.Context {
	now := time.Now()
	if shared := b.shared.Load(); shared != nil && now.Before(shared.until) {
		return shared.ctx
	}
	const window = callTimeout / 10
	ctx, cancel := context.WithTimeout(b.ctx, callTimeout+window)
	b.shared.Store(&sharedContext{ctx, cancel, now.Add(window)})
	return ctx
}
