package reports

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

var must = steps.Must

var eventually = testserver.WithinAMinute

// lateStore is a store whose client is told that a request broke off, while the request is under
// way and arrives later. What the client and its driver send again goes another way.
type lateStore struct {
	direct, proxied string // URLs
	proxy           *faultproxy.Proxy
	moved           string // where new connections go then, or empty
	matches         func(*faultproxy.Request) bool
	looks           bool // a try looks whether the lock is free, and writes nothing if it is held
}

// next makes the next request that names a key late, and returns what lets it arrive.
func (s *lateStore) next(t *testing.T, key string) (arrive func()) {
	done, seen := make(chan struct{}), false
	s.proxy.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if seen || !bytes.Contains(r.Data, []byte(key)) || s.matches != nil && !s.matches(r) {
			return faultproxy.Pass
		}
		seen = true
		if s.moved != "" {
			s.proxy.Aim(s.moved)
		}
		r.AfterCut = func() { close(done) } // the server has answered, or has ended the connection
		return faultproxy.LateRequest
	})
	return func() {
		t.Helper()
		if !seen {
			t.Fatal("no request was late")
		}
		s.proxy.Handle(nil)
		s.proxy.Resume()
		select {
		case <-done:
		case <-steps.Soon(t).Done():
			t.Fatal("the late request did not arrive")
		}
	}
}

// open opens a store by its URL. Nobody waits for the end of a lease.
func open(t *testing.T, url string) *fencelock.Client {
	t.Helper()
	opened, err := storeurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(opened.Close)
	return client(t, opened.Backend)
}

func client(t *testing.T, b driver.Backend) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, b, &fencelock.Options{TTL: time.Hour})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lateStores(t *testing.T) map[string]*lateStore {
	before := func(s *testserver.Server, scheme string, f faultproxy.Framer) *lateStore {
		p := faultproxy.Start(t, s.Addr(), f)
		return &lateStore{direct: s.URL(), proxied: scheme + p.Addr(), proxy: p}
	}
	redis, etcd := before(testserver.Redis(t), "redis://", faultproxy.Redis), before(testserver.Etcd(t), "etcd://", faultproxy.GRPC)
	redis.matches = func(r *faultproxy.Request) bool { return strings.HasPrefix(r.Args()[0], "eval") }
	ensemble := testserver.ZooKeeperEnsemble(t, 3)
	alone := before(testserver.ZooKeeper(t), "zk://", faultproxy.ZooKeeper)
	another := before(ensemble[0], "zk://", faultproxy.ZooKeeper)
	another.direct, another.moved = ensemble[2].URL(), ensemble[1].Addr()
	alone.matches = func(r *faultproxy.Request) bool { return !r.First && len(r.Data) > 12 && r.Data[11] == 14 } // multi
	another.matches = alone.matches
	alone.looks, another.looks = true, true
	return map[string]*lateStore{"Redis": redis, "etcd": etcd, "ZooKeeper": alone, "another server of an ensemble": another}
}

// A request breaks off and is sent again, by the driver or by the library. Its first copy arrives
// when the client has been refused, or has released: it takes no lock, and takes none away.
func TestFirstCopyThatArrivesLate(t *testing.T) {
	t.Parallel()
	for name, s := range lateStores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder, other := open(t, s.direct), open(t, s.proxied)
			warm, err := other.Lock(t.Context(), "warm up")
			must(t, err)
			must(t, warm.Release(t.Context()))

			// A wait that was given up.
			held, err := holder.Lock(t.Context(), "waited")
			must(t, err)
			arrive := s.next(t, "waited")
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			waited := make(chan error, 1)
			go func() {
				_, err := other.Lock(ctx, "waited")
				waited <- err
			}()
			eventually(t, "what was sent again waits in line", func() bool {
				line, err := holder.Line(t.Context(), "waited")
				must(t, err)
				return len(line.Claims) == 2
			})
			giveUp()
			steps.Is(t, "a Lock that was canceled", <-waited, context.Canceled)
			must(t, held.Release(t.Context()))
			arrive()
			isFree(t, holder, "waited")

			// A try that was refused. Without a tombstone its first copy takes the lock.
			if !s.looks {
				held, err := holder.Lock(t.Context(), "refused")
				must(t, err)
				arrive := s.next(t, "refused")
				steps.Is(t, "a try beside a holder", steps.ErrOf(try(t, other, "refused")), fencelock.ErrNotAcquired)
				must(t, held.Release(t.Context()))
				arrive()
				isFree(t, holder, "refused")
			}

			// A try that was granted, in the end.
			arrive = s.next(t, "tried")
			tried, err := try(t, other, "tried")
			must(t, err)
			must(t, tried.Release(t.Context()))
			arrive()
			isFree(t, holder, "tried")

			// A release, and the same client has the lock again.
			first, err := other.Lock(t.Context(), "released")
			must(t, err)
			arrive = s.next(t, "released")
			must(t, first.Release(t.Context()))
			again, err := other.Lock(t.Context(), "released")
			must(t, err)
			arrive()
			steps.Is(t, "beside a holder, a try", steps.ErrOf(try(t, holder, "released")), fencelock.ErrNotAcquired)
			must(t, again.Renew(t.Context()))
			must(t, again.Release(t.Context()))
		})
	}
}

// try tries until the store answers: a server may be silent for longer than a try waits.
func try(t *testing.T, c *fencelock.Client, key string) (l *fencelock.Lease, err error) {
	t.Helper()
	eventually(t, "a try of "+key+" has an answer", func() bool {
		l, err = c.TryLock(t.Context(), key)
		return !errors.Is(err, fencelock.ErrUnavailable)
	})
	return l, err
}

// isFree takes a lock that nobody holds. A ghost would be there longer than this waits.
func isFree(t *testing.T, c *fencelock.Client, key string) {
	t.Helper()
	l, err := c.Lock(steps.Soon(t), key)
	if err != nil {
		t.Fatalf("%s: nobody holds the lock, and a wait answered %v", key, err)
	}
	must(t, l.Release(t.Context()))
}
