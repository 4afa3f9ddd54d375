package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Options change what New does by default. Nil and the zero value are ready.
type Options struct {
	// Names is what to call the members in errors, in their order; the kind of a
	// member's store if it is missing or empty.
	Names []string
}

// Backend keeps locks on a majority of its members. Its methods may be called from
// many goroutines at once; each asks all members at the same time, and returns when a
// majority has settled it. What the others still have to do goes on behind.
type Backend struct {
	nodes    []*node
	majority int
	info     driver.Info
	bad      error                 // why no call can succeed
	twins    atomic.Pointer[error] // two members were found to be one store
	now      func() time.Time      // the clock that ballots come from

	closing  context.Context // ends when Close begins: for those who wait
	begin    context.CancelFunc
	ctx      context.Context // ends when Close waits no longer: for calls of members
	stop     context.CancelFunc
	calls    work // calls of ours and of members
	patients [patiences]atomic.Pointer[patient]
	waiters  sync.Pool // of *waiter

	mu     sync.Mutex
	closed bool
	claims map[name]*claim
	alarms alarms
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.LineReader = (*Backend)(nil)
	_ driver.Alarm      = (*Backend)(nil)
)

// node is one member.
type node struct {
	driver.Member
	name string
	owed atomic.Int32 // claims that it could not be told to let go, and is told again
}

// New returns a quorum of members: 3, 5, 7 or 9 independent stores, each opened to take
// ballots (memlock.NewMember, redislock.Options.Member, sqllock.Options.Member). Three
// stand the loss of one, five of two. All programs name the same members, in any
// order. It asks nobody; what is wrong with the members is the answer to the first call.
//
// The Backend takes its members over: Close closes them.
func New(members []driver.Backend, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{majority: len(members)/2 + 1, now: time.Now, claims: map[name]*claim{}}
	b.closing, b.begin = context.WithCancel(context.Background())
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.info = driver.Info{Name: "quorum", Fencing: true, Lease: driver.PerClaim, MinTTL: minTTL}
	for i, m := range members {
		n := &node{name: fmt.Sprintf("node %d", i+1)}
		b.nodes = append(b.nodes, n)
		if m == nil {
			b.bad = fmt.Errorf("member %d of the quorum is nil", i+1)
			continue
		}
		info := m.Info()
		what := info.Name
		if i < len(o.Names) && o.Names[i] != "" {
			what = o.Names[i]
		}
		n.name += " (" + what + ")"
		member, ok := m.(driver.Member)
		switch n.Member = member; {
		case !ok, !info.Ballot:
			b.bad = fmt.Errorf("%s of the quorum takes no ballots: open it as a member (redislock.Options.Member, sqllock.Options.Member, memlock.NewMember)", n.name)
		case !info.Fencing || info.Lease != driver.PerClaim:
			b.bad = fmt.Errorf("%s of the quorum cannot be a member: it needs fencing tokens, and a lease for each claim", n.name)
		}
		for j, other := range members[:i] {
			if same(m, other) {
				b.bad = fmt.Errorf("members %d and %d of the quorum are the same: a majority of votes would not be a majority of stores", j+1, i+1)
			}
		}
		b.info.MinTTL = max(b.info.MinTTL, info.MinTTL)
		if b.info.MaxTTL == 0 || info.MaxTTL < b.info.MaxTTL {
			b.info.MaxTTL = info.MaxTTL
		}
	}
	switch n := len(members); {
	case n < 3:
		b.bad = fmt.Errorf("a quorum needs at least 3 members, not %d: with fewer, none may fail; use the store by itself", n)
	case n%2 == 0:
		b.bad = fmt.Errorf("a quorum has an odd number of members, not %d: the last one makes the majority larger and stands no further loss", n)
	case n > 9:
		b.bad = fmt.Errorf("a quorum has at most 9 members, not %d: each lock asks all of them", n)
	}
	return b
}

// same reports whether two members are one value.
func same(a, b driver.Backend) bool {
	return a != nil && b != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// Info says what a quorum promises: fencing tokens, and neither a line nor
// semaphores nor marks. A lease is at most the MaxTTL of its members.
func (b *Backend) Info() driver.Info { return b.info }

// Initialise ends the quarantine of all members: whoever calls it knows that no lock
// and no token can be left from before. It is for a quorum that is new. It answers
// the errors of the members that could not be reached; it may be called again.
func (b *Backend) Initialise(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	defer b.calls.done()
	errs := make([]error, len(b.nodes))
	var group sync.WaitGroup
	for i, n := range b.nodes {
		group.Go(func() {
			if err := n.Initialise(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", n.name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Settle returns when nothing goes on behind, or ctx ends. It is for whoever looks at
// the members themselves, as tests do: each call returns when a majority has settled
// it, and a look at one member may come before the call has got there.
func (b *Backend) Settle(ctx context.Context) error {
	select {
	case <-b.calls.settled():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ready begins a call: if it answers nil, b.calls.done ends it.
func (b *Backend) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.bad != nil {
		return &driver.PermanentError{Err: b.bad}
	}
	if twins := b.twins.Load(); twins != nil {
		return &driver.PermanentError{Err: *twins}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return driver.ErrClosed
	}
	b.calls.add()
	return nil
}

// minTTL is the shortest lease that is worth something once a majority has answered.
const minTTL = 100 * time.Millisecond

// closeGrace is how long Close lets what goes on behind come to its end.
const closeGrace = 500 * time.Millisecond

// Close ends what goes on behind, after half a second at most, and closes the
// members. It leaves claims alone.
func (b *Backend) Close() error {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	b.begin()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-b.calls.settled():
	case <-grace.C:
	}
	b.stop()
	<-b.calls.settled()
	b.calls.end()
	if was {
		return nil
	}
	b.alarms.close()
	var errs []error
	for _, n := range b.nodes {
		if n.Member != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// validity is how long a lease of length d is believed, counted from its sending: as
// the core does it, less a hundredth and two milliseconds for clocks that drift.
func validity(d time.Duration) time.Duration { return d - d/100 - 2*time.Millisecond }

// check refuses what the core never sends, and what a quorum cannot keep.
func (b *Backend) check(c *driver.Claim) error {
	var err error
	switch {
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		err = fmt.Errorf("quorum: a key has 1 to %d bytes, not %d", driver.MaxKey, len(c.Key))
	case c.ID == "":
		err = fmt.Errorf("quorum: the claim on %q has no id", c.Key)
	case c.Capacity != driver.RW:
		err = fmt.Errorf("quorum: %q cannot be a semaphore: a majority does not keep its size (of three nodes with room for two each, "+
			"three claims can have two nodes each); use one store for it", c.Key)
	case c.Weight < 1 || c.Weight > c.Capacity:
		err = fmt.Errorf("quorum: a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.TTL < b.info.MinTTL || c.TTL > b.info.MaxTTL:
		err = fmt.Errorf("quorum: the lease on %q must last %v to %v, not %v", c.Key, b.info.MinTTL, b.info.MaxTTL, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		err = fmt.Errorf("quorum: a claim on %q reserves 1 to %d tokens, not %d", c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0:
		err = fmt.Errorf("quorum: no ballots are taken, as for %q: a quorum is no member of another", c.Key)
	default:
		return nil
	}
	return &driver.PermanentError{Err: err}
}
