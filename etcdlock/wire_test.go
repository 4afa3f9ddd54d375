package etcdlock_test

import (
	"context"
	"maps"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestRequestsAreAsFewAsPromised counts what the server itself says it was asked.
//
//verify:fault etcd | requests of a free lock and of its release
func TestRequestsAreAsFewAsPromised(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	a, b := x.backend(), x.backend()
	lasting := func(c driver.Claim) driver.Claim { return steps.TTL(c, 24*time.Hour) } // it does not get old
	mutex, permit := lasting(steps.Claim("k")), lasting(steps.Permits("s", 1, 3))
	// Leases are granted with the first claim of their length.
	steps.Leave(t, a, steps.Hold(t, a, mutex))
	steps.Leave(t, b, steps.Hold(t, b, mutex))
	const n = 20
	for what, c := range map[string]driver.Claim{
		"mutex": mutex, "mutex that does not wait": steps.NoWait(mutex),
		"read lock": lasting(steps.Reader("k")), "read lock that does not wait": steps.NoWait(lasting(steps.Reader("k"))),
		"permit": permit, "permit that does not wait": steps.NoWait(permit),
	} {
		x.asks("a free "+what, map[string]int{"Txn": 2 * n}, func() {
			for range n {
				steps.Leave(t, a, steps.Hold(t, a, c))
			}
		})
	}
	x.asks("a mark", map[string]int{"Txn": 3 * n}, func() {
		for range n {
			steps.Leave(t, a, steps.Hold(t, a, mutex), driver.Exit{Mark: "m"})
		}
	})

	held, part := steps.Hold(t, a, steps.Another(mutex)), steps.Hold(t, a, steps.Another(permit))
	x.asks("a refusal", map[string]int{"Txn": 2}, func() { steps.Refused(t, b, mutex) })
	x.asks("a permit of a semaphore in use that does not wait", map[string]int{"Txn": 3 + 1}, func() {
		steps.Leave(t, b, steps.Hold(t, b, steps.NoWait(permit)))
	})
	x.asks("a renewal of two claims", map[string]int{"Txn": 1, "LeaseKeepAlive": 1}, func() {
		for _, err := range a.Renew(steps.Soon(t), []driver.Ticket{held, part}) {
			steps.OK(t, err)
		}
	})
	passing := map[string]int{"Txn": 2, "LeaseGrant": 1}
	x.asks("Detach", passing, func() { part = steps.Detach(t, a, part) })
	x.asks("a renewal by a handle", map[string]int{"Txn": 2, "LeaseKeepAlive": 1}, func() {
		steps.Must(t, steps.Renew(t, b, part))
	})
	x.asks("Adopt", passing, func() { part = steps.Adopt(t, b, part, steps.Another(permit)) })
	x.asks("the Leave of an adopted claim", map[string]int{"Txn": 1}, func() { steps.Leave(t, b, part) })

	var w driver.Ticket
	x.asks("joining a line", map[string]int{"Txn": 2}, func() { w = steps.Wait(t, b, mutex) })
	awaitCosts(t, x, b, w, func() error { return a.Leave(context.Background(), held, driver.Exit{}) })
}

// asks holds what the server was asked during do to want.
func (x *scene) asks(what string, want map[string]int, do func()) {
	x.t.Helper()
	if got := x.asked(do); !maps.Equal(got, want) {
		x.t.Errorf("%s costs %v; want %v", what, got, want)
	}
}

// asked returns what the server was asked during do.
func (x *scene) asked(do func()) map[string]int {
	x.t.Helper()
	before := requests(x.t, x.server)
	do()
	got := requests(x.t, x.server)
	for method, n := range before {
		if got[method] -= n; got[method] == 0 {
			delete(got, method)
		}
	}
	return got
}

// awaitCosts waits in b for the grant of w, and leaves before that.
func awaitCosts(t *testing.T, x *scene, b driver.Backend, w driver.Ticket, leave func() error) {
	t.Helper()
	calls, left := 0, make(chan error, 1)
	got := x.asked(func() {
		for ; !w.Granted; calls++ {
			if calls == 3 {
				go func() {
					watched(t, x.server)
					left <- leave()
				}()
			}
			var err error
			w, err = b.Await(steps.Soon(t), w)
			steps.Must(t, err)
		}
		steps.Must(t, <-left)
	})
	// A call costs two reads and a watch. The last one reads and writes when the other has left.
	for method, most := range map[string]int{"Watch": calls, "Txn": 2*calls + 2 + 1} {
		if got[method] > most {
			t.Errorf("%d calls of Await and a Leave cost %v; want at most %d of %s", calls, got, most, method)
		}
		delete(got, method)
	}
	steps.Same(t, "other requests of a wait", len(got), 0)
	steps.Leave(t, b, w)
}

// TestEnterRenewsAnOldLease: a claim that joins on a lease that has run for
// a while has all of a lease even so. That the server agrees is a law.
func TestEnterRenewsAnOldLease(t *testing.T) {
	x, b := sceneOfOne(t)
	const lease = 8 * time.Second
	steps.Leave(t, b, steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease)))
	sleep(lease / 2)
	sent := time.Now()
	k := steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease))
	if took := time.Since(sent); k.Left < lease-took {
		t.Errorf("a claim that took %v on an old lease has %v left of %v", took, k.Left, k.TTL)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
}

// TestLeftCountsFromTheLastKeepAlive: putting a key does not start its lease again.
func TestLeftCountsFromTheLastKeepAlive(t *testing.T) {
	_, b := sceneOfOne(t)
	k := steps.Hold(t, b, steps.TTL(steps.Claim("one"), time.Hour))
	sleep(time.Second)
	other := steps.Hold(t, b, steps.TTL(steps.Claim("two"), time.Hour))
	if other.Left > time.Hour-time.Second {
		t.Errorf("a claim that joined a second after its lease was granted has %v left of 1h0m0s; the server counts from the grant", other.Left)
	}
	steps.Leave(t, b, k)
	steps.Leave(t, b, other)
}

func TestTicketHasTheGrantedTTL(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Config("--election-timeout=3000")))
	b := x.backend()
	sent := time.Now()
	k := steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease))
	if took := time.Since(sent); k.TTL != 5*time.Second || k.Left > k.TTL || k.Left < k.TTL-took {
		t.Errorf("with an election timeout of 3s a lease of 2s is granted for %v, %v left after %v; want 5s", k.TTL, k.Left, took)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
}

func TestCallsEndWithTheirContextWhenTheServerHangs(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	b := backend(t, client(t, s), "")
	held, w := steps.Hold(t, b, steps.Claim("k")), steps.Wait(t, b, steps.Claim("k"))
	steps.Must(t, s.Pause())
	for what, call := range map[string]func(ctx context.Context) error{
		"Enter": func(ctx context.Context) error { _, err := b.Enter(ctx, steps.Claim("other")); return err },
		"Enter with a new lease": func(ctx context.Context) error {
			_, err := b.Enter(ctx, steps.TTL(steps.Claim("other"), time.Hour))
			return err
		},
		"Await": func(ctx context.Context) error { _, err := b.Await(ctx, w); return err },
		"Renew": func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{held})[0] },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, held, driver.Exit{}) },
		"Break": func(ctx context.Context) error { return b.Break(ctx, "k", held.Token, driver.Break{Reason: "x"}) },
		"Line":  func(ctx context.Context) error { _, err := b.Line(ctx, "k"); return err },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := call(ctx)
		steps.Is(t, what+" on a server that hangs", err, context.DeadlineExceeded)
		cancel()
	}
	began := time.Now()
	b.Close()
	steps.TookAtMost(t, began, time.Minute) // of a second that leases are revoked for
}
