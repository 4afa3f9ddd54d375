package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// lastSecond has requests about leases take as long as the server needs: a lease whose grant was not heard
// of in time ends by itself. And each lease that a client asks about is in its last second, of which a server
// says that 0 seconds are left.
var lastSecond = clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
	func(
		ctx context.Context, method string, q, a any, c *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if strings.HasPrefix(method, "/etcdserverpb.Lease/") {
			ctx = context.WithoutCancel(ctx)
		}
		err := send(ctx, method, q, a, c, opts...)
		if left, ok := a.(*etcdserverpb.LeaseTimeToLiveResponse); ok && left.TTL > 0 {
			left.TTL = 0
		}
		return err
	},
)}}

// TestNothingIsLeft uses everything, closes, and looks at what the server has.
//
//verify:fault etcd | nothing is left
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	var views []driver.Backend
	for range 2 {
		views = append(views, backend(t, dial(t, lastSecond, x.server.Addr()), x.prefix))
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, c := range []driver.Claim{steps.Claim("k"), steps.Reader("k"), steps.Permits("s", 1, 2), steps.TTL(steps.Claim("k"), time.Hour)} {
				view := views[i%2]
				k, err := view.Enter(steps.Soon(t), c)
				for err == nil && !k.Granted {
					k, err = view.Await(steps.Soon(t), k)
				}
				if err == nil {
					err = view.Leave(steps.Soon(t), k, driver.Exit{})
				}
				steps.OK(t, err)
			}
		})
	}
	group.Wait()
	for _, view := range views {
		steps.OK(t, view.Close())
	}
	if left := x.leases(); len(left) > 0 {
		t.Errorf("%d leases are left after Close", len(left))
	}
	if left := x.keys(""); len(left) > 0 {
		t.Errorf("keys are left: %v", left)
	}
	testserver.Eventually(t, time.Minute, "no watch is left", func() bool { return watchers(t, x.server) == "0" })
}

// TestTombstonesExpire: what keeps an id out hangs on a lease of two TTLs at most.
func TestTombstonesExpire(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b := x.backend()
	c := steps.Claim("k")
	steps.Gone(t, "Leave", b.Leave(steps.Soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}))
	broken := steps.Hold(t, b, steps.Another(c))
	steps.Must(t, b.Break(steps.Soon(t), "k", broken.Token, driver.Break{Reason: "x"}))
	b.Close()
	steps.Same(t, "tombstones", len(x.keys("")), 2)
	for _, id := range x.leases() {
		if l, err := x.etcd.TimeToLive(steps.Soon(t), id); err != nil || time.Duration(l.GrantedTTL)*time.Second > 2*c.TTL {
			t.Errorf("the lease of a tombstone is %+v, %v; want one of two TTLs at most", l, err)
		}
	}
	x.revoke(x.leases()...) // as if they had ended
	steps.Same(t, "what is left", len(x.keys("")), 0)
}

// TestCloseKeepsTheLeaseOfAClaim: a lease that something hangs on is not revoked.
func TestCloseKeepsTheLeaseOfAClaim(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	// Enters are under way while the Backend is closed: none may be granted and then
	// lose its lease to Close.
	var group sync.WaitGroup
	var mu sync.Mutex
	var held []driver.Ticket
	for i := range 20 {
		group.Go(func() {
			k, err := a.Enter(steps.Soon(t), steps.Claim(fmt.Sprint(i)))
			if err == nil {
				mu.Lock()
				held = append(held, k)
				mu.Unlock()
			} else if !errors.Is(err, driver.ErrClosed) {
				t.Error(err)
			}
		})
	}
	first := steps.Hold(t, a, steps.Claim("first"))
	a.Close()
	group.Wait()
	for _, k := range append(held, first) {
		steps.Same(t, "a claim that was granted is gone after Close", len(claims(t, b, k.Key)), 1)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
}

// TestRefusedTriesAreNotWritten: a try that is refused was never in line, not even for a moment, and tries that
// come at once are given all permits of a semaphore.
func TestRefusedTriesAreNotWritten(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	begin := x.revision()
	const size, tries = 3, 24
	var group sync.WaitGroup
	var held atomic.Int64
	for i := range tries {
		group.Go(func() {
			k, err := []driver.Backend{a, b}[i%2].Enter(steps.Soon(t), steps.NoWait(steps.Permits("s", 1, size)))
			switch {
			case err == nil && k.Granted:
				held.Add(1)
			case !errors.As(err, new(*driver.BusyError)):
				t.Errorf("a try answered granted %v, error %v", k.Granted, err)
			}
		})
	}
	group.Wait()
	steps.Same(t, "permits were given away", held.Load(), size)
	if names := x.written(begin); len(names) != size {
		t.Errorf("%q were written; want the %d that were granted", names, size)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
}

// TestFormatOfAnotherVersion is refused, not guessed at. A claim may be in line before its Backend finds a
// record that it cannot read: its caller is told that it has not joined, so it leaves again.
//
//verify:fault The API, on all stores | two versions of the library on one key
func TestFormatOfAnotherVersion(t *testing.T) {
	x, b := sceneOfOne(t)
	const damaged = `{"v":1,"id":"x","capacity":2,"weight":-1,"mark":5}`
	for _, test := range []struct {
		name, value string
		c           driver.Claim
	}{
		{"k/wAAAA", `{"v":2,"x":1}`, steps.NoWait(steps.Claim("k"))},
		{"k/w0", damaged, steps.Claim("k")},
		{"k/w1", damaged, steps.Reader("k")},
		{"k/p0", damaged, steps.Permits("k", 1, 2)},
		{"k/m", damaged, steps.Claim("k")},
	} {
		x.put(x.prefix+test.name, test.value)
		steps.Permanent(t, "Enter beside "+test.name, steps.ErrOf(b.Enter(steps.Soon(t), test.c)))
		steps.Permanent(t, "Line with "+test.name, steps.ErrOf(b.Line(steps.Soon(t), "k")))
		if names := x.keys("k/"); len(names) != 1 {
			t.Errorf("after an Enter that was refused for %s the line has %v", test.name, names)
		}
		x.remove(x.prefix+"k/", clientv3.WithPrefix())
	}
}
