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

	mu       sync.Mutex
	sent     time.Time     // when the last answered grant or keep-alive was sent
	renewing chan struct{} // closed when the keep-alive of renewOld has ended; nil if none is under way
}

// left is how long the lease lasts for certain, counted from at.
func (l *lease) left(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.ttl-age(l.sent, at), l.ttl)
}

// renewed notes that the server has started the lease again after sent.
func (l *lease) renewed(sent time.Time) {
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

// leaseKind is what a lease is for.
type leaseKind struct {
	seconds    int64
	tombstones bool // tombstones use a lease that is never renewed
}

// leaseSet is the current lease of each kind. The zero value is ready.
type leaseSet struct {
	mu       sync.Mutex
	current  map[leaseKind]*grant
	ofClaims map[clientv3.LeaseID]*lease
}

// grant is a request for a lease, and its answer.
type grant struct {
	done  chan struct{} // closed when the others are set
	lease *lease
	err   error
}

// over reports whether no answer is to come and the lease has at most need left.
func (g *grant) over(need time.Duration) bool {
	select {
	case <-g.done:
		return g.err != nil || g.lease.left(time.Now()) <= need
	default:
		return false
	}
}

// get returns the current grant of a kind. If there is none, or it is over, start fills
// a new one in.
func (s *leaseSet) get(kind leaseKind, need time.Duration, start func(*grant)) *grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.current[kind]
	if g != nil && !g.over(need) {
		return g
	}
	if s.current == nil {
		s.current = make(map[leaseKind]*grant)
		s.ofClaims = make(map[clientv3.LeaseID]*lease)
	}
	if g != nil && g.err == nil {
		delete(s.ofClaims, g.lease.id)
	}
	g = &grant{done: make(chan struct{})}
	s.current[kind] = g
	start(g)
	return g
}

// granted adds a lease that claims may use.
func (s *leaseSet) granted(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofClaims[l.id] = l
}

// find returns the lease of claims with this id, or nil if this Backend has none.
func (s *leaseSet) find(id clientv3.LeaseID) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ofClaims[id]
}

// forget drops a lease that the server does not know any more.
func (s *leaseSet) forget(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ofClaims, id)
	for kind, g := range s.current {
		select {
		case <-g.done:
			if g.err == nil && g.lease.id == id {
				delete(s.current, kind)
			}
		default:
		}
	}
}

// ids lists the leases of claims.
func (s *leaseSet) ids() (ids []clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.ofClaims {
		ids = append(ids, id)
	}
	return ids
}

// wholeSeconds rounds a duration up to what etcd can count.
func wholeSeconds(d time.Duration) int64 {
	return int64((max(d, minTTL) + time.Second - 1) / time.Second)
}

// grantTimeout bounds the wait for a lease: a member that has just lost its leader may
// lose the request too.
const grantTimeout = 2 * time.Second

// errNoLease is no error of a context: the caller's context may have time left.
var errNoLease = errors.New("the server has granted no lease within " + grantTimeout.String())

// leaseOf returns the current lease of a kind. Calls at the same time share one
// request, which goes on when the call that sent it has ended.
func (b *Backend) leaseOf(ctx context.Context, kind leaseKind) (*lease, error) {
	seconds, need := kind.seconds, time.Duration(0)
	if kind.tombstones {
		seconds, need = 2*seconds, time.Duration(seconds)*time.Second // many tombstones share one lease
	}
	g := b.leases.get(kind, need, func(g *grant) {
		b.calls.background(func() {
			defer close(g.done)
			ctx, cancel := context.WithTimeout(b.ctx, grantTimeout)
			defer cancel()
			g.lease, g.err = b.grant(ctx, seconds)
			switch {
			case g.err == nil && !kind.tombstones:
				b.leases.granted(g.lease)
			case g.err != nil && ctx.Err() != nil && b.ctx.Err() == nil:
				g.err = errNoLease
			}
		})
	})
	select {
	case <-g.done:
		return g.lease, g.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// grant asks for a lease that no other call knows.
func (b *Backend) grant(ctx context.Context, seconds int64) (*lease, error) {
	l := &lease{sent: time.Now()}
	answer, err := b.etcd.Grant(ctx, seconds)
	if err != nil {
		return nil, err
	}
	l.id, l.ttl = answer.ID, time.Duration(answer.TTL)*time.Second
	return l, nil
}

// keepAlive starts a lease again, and returns its length. It sends one request.
// (clientv3's KeepAliveOnce repeats the request without a pause while the server
// cannot be reached.)
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID) (ttl time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := time.Now()
	stream, err := pb.NewLeaseClient(b.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		// Send says EOF where Recv says why.
		if _, why := stream.Recv(); why != nil {
			err = why
		}
		return 0, clientv3.ContextError(ctx, err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if answer.GetTTL() <= 0 {
		b.leases.forget(id)
		return 0, rpctypes.ErrLeaseNotFound
	}
	if l := b.leases.find(id); l != nil {
		l.renewed(sent)
	}
	return time.Duration(answer.GetTTL()) * time.Second, nil
}

// renewOld starts l again in the background if a quarter of it has passed, so that a
// claim that joins now has most of a lease. The channel is closed when that is done; it
// is nil if l is young.
func (b *Backend) renewOld(l *lease) <-chan struct{} {
	if l.left(time.Now()) > l.ttl*3/4 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewing != nil {
		return l.renewing
	}
	done := make(chan struct{})
	l.renewing = done
	b.calls.background(func() {
		ctx, cancel := context.WithTimeout(b.ctx, l.ttl/3)
		defer cancel()
		_, _ = b.keepAlive(ctx, l.id) // an error shows in what is left of the lease
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewing = nil
		close(done)
	})
	return done
}

// closeTimeout bounds how long Close tries to revoke leases.
const closeTimeout = time.Second

// revokeIdle revokes those of our leases that hold no key.
func (b *Backend) revokeIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, id := range b.leases.ids() {
		group.Go(func() {
			// TTL is in whole seconds, 0 in the last one.
			l, err := b.etcd.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
			if err == nil && l.GrantedTTL > 0 && len(l.Keys) == 0 {
				_, _ = b.etcd.Revoke(ctx, id) // or it ends by itself
			}
		})
	}
	group.Wait()
}

// leaseEnded reports whether err says that the server does not know the lease. The
// request that got it has changed nothing.
func leaseEnded(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
