package reports

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

var must = steps.Must

// lateStore is a store whose client is told that a request broke off, while the request is under
// way and arrives later. What the client and its driver send again goes another way.
type lateStore struct {
	direct, proxied string // URLs
	proxy           *faultproxy.Proxy
	moved           string // where new connections go then, or empty
	matches         func(*faultproxy.Request) bool
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
		case <-time.After(30 * time.Second):
			t.Fatal("the late request did not arrive")
		}
	}
}

func (s *lateStore) open(t *testing.T, url string) *fencelock.Client {
	t.Helper()
	opened, err := storeurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(opened.Close)
	c := testclient.New(t, opened.Backend, &fencelock.Options{TTL: time.Minute})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lateStores(t *testing.T) map[string]*lateStore {
	etcd, alone, ensemble := testserver.Etcd(t), testserver.ZooKeeper(t), testserver.ZooKeeperEnsemble(t, 3)
	writes := func(r *faultproxy.Request) bool { return !r.First && len(r.Data) > 12 && r.Data[11] == 14 } // multi
	before := func(s *testserver.Server, scheme string, f faultproxy.Framer) (string, *faultproxy.Proxy) {
		p := faultproxy.Start(t, s.Addr(), f)
		return scheme + p.Addr(), p
	}
	one := &lateStore{direct: etcd.URL()}
	one.proxied, one.proxy = before(etcd, "etcd://", faultproxy.GRPC)
	two := &lateStore{direct: alone.URL(), matches: writes}
	two.proxied, two.proxy = before(alone, "zk://", faultproxy.ZooKeeper)
	three := &lateStore{direct: ensemble[2].URL(), matches: writes, moved: ensemble[1].Addr()}
	three.proxied, three.proxy = before(ensemble[0], "zk://", faultproxy.ZooKeeper)
	return map[string]*lateStore{"etcd": one, "ZooKeeper": two, "another server of an ensemble": three}
}

// A request breaks off and is sent again, by the driver or by the library. Its first copy arrives
// when the client has been refused, or has released: it takes no lock, and takes none away.
func TestFirstCopyThatArrivesLate(t *testing.T) {
	t.Parallel()
	for name, s := range lateStores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder, other := s.open(t, s.direct), s.open(t, s.proxied)
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
			steps.Eventually(t, "what was sent again waits in line", func() bool {
				line, err := holder.Line(t.Context(), "waited")
				must(t, err)
				return len(line.Claims) == 2
			})
			giveUp()
			if err := <-waited; !errors.Is(err, context.Canceled) {
				t.Errorf("a Lock that was canceled ended with %v", err)
			}
			must(t, held.Release(t.Context()))
			arrive()
			isFree(t, holder, "waited")

			// A try that was granted, in the end.
			arrive = s.next(t, "tried")
			tried, err := other.TryLock(t.Context(), "tried")
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
			if _, err := holder.TryLock(t.Context(), "released"); !errors.Is(err, fencelock.ErrNotAcquired) {
				t.Errorf("beside a holder, a try answered %v", err)
			}
			must(t, again.Renew(t.Context()))
			must(t, again.Release(t.Context()))
		})
	}
}

// isFree takes a lock that nobody holds. The leases of this test last a minute, so a ghost would
// be there longer than this waits.
func isFree(t *testing.T, c *fencelock.Client, key string) {
	t.Helper()
	l, err := c.Lock(t.Context(), key, fencelock.Wait(10*time.Second))
	if err != nil {
		t.Fatalf("%s: nobody holds the lock, and a wait answered %v", key, err)
	}
	must(t, l.Release(t.Context()))
}
