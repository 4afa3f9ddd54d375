package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is one of our leases on the server.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration // as granted

	mu     sync.Mutex
	sent   time.Time     // of the last grant or keep-alive that was answered
	flight chan struct{} // closed when the keep-alive under way has ended; nil if none is
}

// left is how long the lease lasts for certain, counted from at.
func (l *lease) left(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.ttl-age(l.sent, at), l.ttl)
}

// answered notes that the server has started the lease again after sent.
func (l *lease) answered(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.After(l.sent) {
		l.sent = sent
	}
}

// age is the time from one instant to another. The monotonic clock stands still
// while a machine sleeps, and the wall clock may be set back: the longer of both.
func age(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// leases are the leases that claims, and what keeps ids out, hang on.
type leases struct {
	mu    sync.Mutex
	slots map[class]*slot
	byID  map[clientv3.LeaseID]*lease // those of claims
}

// class is what a lease is for.
type class struct {
	seconds int64
	rest    bool // for what keeps ids out; it is never renewed
}

// slot is the lease of a class, or the wait for it.
type slot struct {
	lease   *lease
	pending *grant
}

// grant is a request for a lease that is under way.
type grant struct {
	done  chan struct{} // closed when the others are set
	lease *lease
	err   error
}

func (ls *leases) init() {
	ls.slots = make(map[class]*slot)
	ls.byID = make(map[clientv3.LeaseID]*lease)
}

// seconds rounds a duration up to what etcd can count.
func seconds(d time.Duration) int64 {
	return int64((max(d, minTTL) + time.Second - 1) / time.Second)
}

// shared returns the lease of a class, and asks for one if there is none. Requests
// at the same time are one request, and it goes on when its first caller has left.
func (b *Backend) shared(ctx context.Context, c class) (*lease, error) {
	ls := &b.leases
	ls.mu.Lock()
	s := ls.slots[c]
	if s == nil {
		s = &slot{}
		ls.slots[c] = s
	}
	need := time.Duration(0)
	if c.rest {
		need = time.Duration(c.seconds) * time.Second
	}
	if l := s.lease; l != nil && l.left(time.Now()) > need {
		ls.mu.Unlock()
		return l, nil
	}
	g := s.pending
	if g == nil {
		g = &grant{done: make(chan struct{})}
		s.pending = g
		b.ask(c, s, g)
	}
	ls.mu.Unlock()
	select {
	case <-g.done:
		return g.lease, g.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// grantLimit bounds the wait for a lease: a member that has just lost its leader may
// lose the request too.
const grantLimit = 2 * time.Second

// errNoLease is no error of a context: the caller's may have time left.
var errNoLease = errors.New("the server has granted no lease within " + grantLimit.String())

// ask sends g in the background. It is called during a call, which Close waits for.
func (b *Backend) ask(c class, s *slot, g *grant) {
	want := c.seconds
	if c.rest {
		want *= 2 // so that many ids share it
	}
	b.calls.Add(1)
	go func() {
		defer b.calls.Done()
		ctx, cancel := context.WithTimeout(b.ctx, grantLimit)
		defer cancel()
		g.lease, g.err = b.grant(ctx, want)
		if g.err != nil && ctx.Err() != nil && b.ctx.Err() == nil {
			g.err = errNoLease
		}
		b.leases.mu.Lock()
		defer b.leases.mu.Unlock()
		defer close(g.done)
		s.pending = nil
		if g.err != nil {
			return
		}
		if s.lease != nil {
			delete(b.leases.byID, s.lease.id)
		}
		s.lease = g.lease
		if !c.rest {
			b.leases.byID[g.lease.id] = g.lease
		}
	}()
}

// grant asks for a lease that nobody else knows.
func (b *Backend) grant(ctx context.Context, seconds int64) (*lease, error) {
	l := &lease{sent: time.Now()}
	answer, err := b.etcd.Grant(clientv3.WithRequireLeader(ctx), seconds)
	if err != nil {
		return nil, err
	}
	l.id, l.ttl = answer.ID, time.Duration(answer.TTL)*time.Second
	return l, nil
}

// ours returns the lease of claims with this id, or nil.
func (b *Backend) ours(id clientv3.LeaseID) *lease {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	return b.leases.byID[id]
}

// forget drops a lease that the server does not know any more.
func (b *Backend) forget(id clientv3.LeaseID) {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	delete(b.leases.byID, id)
	for _, s := range b.leases.slots {
		if s.lease != nil && s.lease.id == id {
			s.lease = nil
		}
	}
}

// keepAlive starts a lease again, and returns its length and when that was sent. It
// sends one request and does not repeat it. (clientv3's own KeepAliveOnce asks
// again and again, without a pause, while the server cannot be reached.)
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID) (ttl time.Duration, sent time.Time, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent = time.Now()
	stream, err := pb.NewLeaseClient(b.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, sent, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		// Send says EOF where Recv says why.
		if _, why := stream.Recv(); why != nil {
			err = why
		}
		return 0, sent, clientv3.ContextError(ctx, err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, sent, clientv3.ContextError(ctx, err)
	}
	if answer.GetTTL() <= 0 {
		b.forget(id)
		return 0, sent, rpctypes.ErrLeaseNotFound
	}
	if l := b.ours(id); l != nil {
		l.answered(sent)
	}
	return time.Duration(answer.GetTTL()) * time.Second, sent, nil
}

// refresh starts l again in the background if a quarter of it has passed, so that a
// claim that joins now has most of a lease. It returns a channel that is closed
// when that is done, or nil if there is nothing to do.
func (b *Backend) refresh(l *lease) <-chan struct{} {
	if l.left(time.Now()) > l.ttl*3/4 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flight != nil {
		return l.flight
	}
	done := make(chan struct{})
	l.flight = done
	b.calls.Add(1) // during a call, which Close waits for
	go func() {
		defer b.calls.Done()
		ctx, cancel := context.WithTimeout(b.ctx, l.ttl/3)
		defer cancel()
		// What went wrong shows in what is left of the lease.
		_, _, _ = b.keepAlive(clientv3.WithRequireLeader(ctx), l.id)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.flight = nil
		close(done)
	}()
	return done
}

// lastWords is how long Close may take to give leases back.
const lastWords = time.Second

// revokeIdle revokes those of our leases that nothing hangs on.
func (b *Backend) revokeIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	b.leases.mu.Lock()
	var group sync.WaitGroup
	for id := range b.leases.byID {
		group.Go(func() {
			// TTL is in whole seconds, 0 in the last one.
			if l, err := b.etcd.TimeToLive(ctx, id, clientv3.WithAttachedKeys()); err == nil && l.GrantedTTL > 0 && len(l.Keys) == 0 {
				_, _ = b.etcd.Revoke(ctx, id) // or it ends by itself
			}
		})
	}
	b.leases.mu.Unlock()
	group.Wait()
}

// leaseEnded reports whether err says that the server does not know the lease. The
// request that got it has changed nothing.
func leaseEnded(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
