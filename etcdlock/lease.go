package etcdlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/etcdlock/internal/once"
)

// lease is one of our leases on the server.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration // as granted

	mu   sync.Mutex
	sent time.Time // when the last answered grant or keep-alive was sent
}

// left is how long the lease lasts for certain, counted from at.
func (l *lease) left(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.ttl-age(l.sent, at), l.ttl)
}

// young reports whether a claim that joins now gets most of the lease.
func (l *lease) young() bool { return l.left(time.Now()) > l.ttl*3/4 }

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

// grace is how long after its end a lease may still be on the server.
const grace = 10 * time.Second

// leaseSet has the leases that claims share: one for each length in whole seconds. The
// zero value is ready.
type leaseSet struct {
	mu       sync.Mutex
	byLength map[int64]*lease
	fetches  map[int64]*leaseFetch // under way
	group    sync.WaitGroup        // of the fetches
}

// leaseFetch is a request for a lease, or a keep-alive of an old one. All calls that need
// the lease share it.
type leaseFetch struct {
	done  chan struct{} // closed when the others are set
	lease *lease
	err   error
}

// get returns the lease of a length if it is young, and otherwise the fetch that makes it
// so. fetch sends that; old may be nil.
func (s *leaseSet) get(seconds int64, fetch func(old *lease) (*lease, error)) (*lease, *leaseFetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byLength[seconds]
	if old != nil && old.young() {
		return old, nil
	}
	if f := s.fetches[seconds]; f != nil {
		return nil, f
	}
	if s.byLength == nil {
		s.byLength, s.fetches = make(map[int64]*lease), make(map[int64]*leaseFetch)
	}
	f := &leaseFetch{done: make(chan struct{})}
	s.fetches[seconds] = f
	s.group.Go(func() {
		defer close(f.done)
		f.lease, f.err = fetch(old)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.fetches, seconds)
		// The server may end a lease late. Until then await has to know that it is over.
		maps.DeleteFunc(s.byLength, func(_ int64, l *lease) bool { return l.left(time.Now()) < -grace })
		if f.err == nil {
			s.byLength[seconds] = f.lease
		}
	})
	return nil, f
}

// find returns the lease of claims with this id, or nil if this Backend has none.
func (s *leaseSet) find(id clientv3.LeaseID) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byLength {
		if l.id == id {
			return l
		}
	}
	return nil
}

// forget drops a lease that the server does not know any more.
func (s *leaseSet) forget(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byLength, func(_ int64, l *lease) bool { return l.id == id })
}

// takeAll waits for the fetches and empties the set.
func (s *leaseSet) takeAll() []*lease {
	s.group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.byLength))
	clear(s.byLength)
	return all
}

// wholeSeconds rounds a duration up to what etcd can count.
func wholeSeconds(d time.Duration) int64 {
	return int64((max(d, minTTL) + time.Second - 1) / time.Second)
}

// fetchTimeout bounds the wait for a lease: a member that has just lost its leader may
// lose the request too.
const fetchTimeout = 2 * time.Second

// errNoLease ends a fetch that got no answer in time.
var errNoLease = errors.New("the server has granted no lease within " + fetchTimeout.String())

// leaseFor returns a lease for a claim with this TTL: one of its own, if the claim is to
// outlive this Backend.
func (b *Backend) leaseFor(ctx context.Context, ttl time.Duration, own bool) (*lease, error) {
	if own {
		return b.grant(ctx, wholeSeconds(ttl))
	}
	return b.leaseOf(ctx, ttl)
}

// leaseOf returns the shared lease for claims with this TTL. A put does not start a lease
// again, so leaseOf keeps a lease alive once a quarter of it has passed. It asks until ctx
// ends: the server may be slow, or have lost the request.
func (b *Backend) leaseOf(ctx context.Context, ttl time.Duration) (*lease, error) {
	seconds := wholeSeconds(ttl)
	for {
		l, fetch := b.leases.get(seconds, func(old *lease) (*lease, error) { return b.fetchLease(seconds, old) })
		if l != nil {
			return l, nil
		}
		select {
		case <-fetch.done:
			if fetch.err != errNoLease || b.etcd.Ctx().Err() != nil { // a closed client gets no answer, ever
				return fetch.lease, fetch.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fetchLease keeps the lease old alive, or asks for another one if old is nil or has
// ended. It goes on when the call that needs the lease has ended: the next call needs it.
func (b *Backend) fetchLease(seconds int64, old *lease) (*lease, error) {
	ctx, cancel := context.WithTimeout(b.ctx, fetchTimeout)
	defer cancel()
	if old != nil && old.left(time.Now()) > 0 {
		if _, err := b.keepAlive(ctx, old.id); !leaseEnded(err) {
			return old, nil // any other error shows in what is left of the lease
		}
	}
	l, err := b.grant(ctx, seconds)
	if err != nil && ctx.Err() != nil && b.ctx.Err() == nil {
		err = errNoLease
	}
	return l, err
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

// keepAlive starts a lease again, and returns its length.
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID) (ttl time.Duration, err error) {
	sent := time.Now()
	ttl, err = once.KeepAlive(ctx, b.etcd, id)
	if leaseEnded(err) {
		b.leases.forget(id)
	}
	if l := b.leases.find(id); l != nil && err == nil {
		l.renewed(sent)
	}
	return ttl, err
}

// closeTimeout bounds how long leases are revoked.
const closeTimeout = time.Second

// revokeIdle revokes those leases that hold no key.
func (b *Backend) revokeIdle(leases []*lease) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, l := range leases {
		// TTL is in whole seconds, 0 in the last one.
		now, err := b.etcd.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
		if err == nil && now.GrantedTTL > 0 && len(now.Keys) == 0 {
			_, _ = b.etcd.Revoke(ctx, l.id) // or it ends by itself
		}
	}
}

// leaseEnded reports whether err says that the server does not know the lease. The
// request that got it has changed nothing.
func leaseEnded(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
