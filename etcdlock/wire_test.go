package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

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
	// Leases are granted with the first claim of their length.
	steps.Leave(t, a, steps.Hold(t, a, steps.Claim("warm")))
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("warm")))
	asked := func(what string, want map[string]int, do func()) {
		t.Helper()
		asks(t, x, what, want, do)
	}
	const n = 20
	for what, c := range map[string]driver.Claim{
		"mutex": steps.Claim("k"), "mutex that does not wait": steps.NoWait(steps.Claim("k")),
		"read lock": steps.Reader("k"), "read lock that does not wait": steps.NoWait(steps.Reader("k")),
		"permit": steps.Permits("s", 1, 3), "permit that does not wait": steps.NoWait(steps.Permits("s", 1, 3)),
	} {
		asked("a free "+what, map[string]int{"Txn": 2 * n}, func() {
			for range n {
				steps.Leave(t, a, steps.Hold(t, a, c))
			}
		})
	}
	asked("a mark", map[string]int{"Txn": 3 * n}, func() {
		for range n {
			steps.Must(t, a.Leave(steps.Soon(t), steps.Hold(t, a, steps.Claim("k")), driver.Exit{Mark: "m"}))
		}
	})

	held, permit := steps.Hold(t, a, steps.Claim("k")), steps.Hold(t, a, steps.Permits("s", 1, 3))
	asked("a refusal", map[string]int{"Txn": 2}, func() { steps.Refused(t, b, steps.Claim("k")) })
	asked("a permit of a semaphore in use that does not wait", map[string]int{"Txn": 3 + 1}, func() {
		steps.Leave(t, b, steps.Hold(t, b, steps.NoWait(steps.Permits("s", 1, 3))))
	})
	asked("a renewal of two claims", map[string]int{"Txn": 1, "LeaseKeepAlive": 1}, func() {
		for _, err := range a.Renew(steps.Soon(t), []driver.Ticket{held, permit}) {
			steps.OK(t, err)
		}
	})
	steps.Leave(t, a, permit)
	permit = steps.Hold(t, a, steps.Permits("s", 1, 3))
	detachingCosts(t, x, a, b, permit)

	var w driver.Ticket
	asked("joining a line", map[string]int{"Txn": 2}, func() { w = steps.Wait(t, b, steps.Claim("k")) })
	// Two reads, and when the other has left a read and a write.
	asked("being granted", map[string]int{"Watch": 1, "Txn": 4 + 1}, func() {
		before := requests(t, x.server)
		done := steps.Await(t, b, w)
		testserver.Eventually(t, time.Minute, "it watches", func() bool {
			now := requests(t, x.server)
			return now["Watch"] > before["Watch"] && now["Txn"] == before["Txn"]+2
		})
		steps.Leave(t, a, held)
		w = steps.Within(t, 15*time.Second, done)
	})
	next := waitingCosts(t, x, a)
	steps.Leave(t, a, next)
	steps.Leave(t, b, w)
}

// asks holds what the server was asked during do to want.
func asks(t *testing.T, x *scene, what string, want map[string]int, do func()) {
	t.Helper()
	before := requests(t, x.server)
	do()
	got := requests(t, x.server)
	for method, n := range before {
		if got[method] -= n; got[method] == 0 {
			delete(got, method)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s costs %v; want %v", what, got, want)
	}
}

// waitingCosts has a claim of a wait for three seconds.
func waitingCosts(t *testing.T, x *scene, a driver.Backend) driver.Ticket {
	t.Helper()
	next := steps.Wait(t, a, steps.Claim("k"))
	asks(t, x, "waiting for three seconds", map[string]int{"Watch": 3, "Txn": 6}, func() {
		for range 3 { // a second each
			now, err := a.Await(steps.Soon(t), next)
			if err != nil || now.Granted {
				t.Fatalf("Await answered granted %v, error %v", now.Granted, err)
			}
		}
	})
	return next
}

func detachingCosts(t *testing.T, x *scene, a, b driver.Backend, permit driver.Ticket) {
	t.Helper()
	passing := map[string]int{"Txn": 2, "LeaseGrant": 1}
	asks(t, x, "Detach", passing, func() { permit = steps.Detach(t, a, permit) })
	asks(t, x, "a renewal by a handle", map[string]int{"Txn": 2, "LeaseKeepAlive": 1}, func() { steps.Must(t, steps.Renew(t, b, permit)) })
	asks(t, x, "Adopt", passing, func() { permit = steps.Adopt(t, b, permit, steps.Another(permit.Claim)) })
	asks(t, x, "the Leave of an adopted claim", map[string]int{"Txn": 1}, func() { steps.Leave(t, b, permit) })
}

// TestEnterRenewsAnOldLease: a claim that joins on a lease that has run for
// a while has most of a lease even so, and its server agrees.
func TestEnterRenewsAnOldLease(t *testing.T) {
	_, b := sceneOfOne(t)
	const lease = 5 * time.Second
	steps.Leave(t, b, steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease)))
	sleep(lease * 6 / 10)
	sent := time.Now()
	k := steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease))
	if took := time.Since(sent); k.Left < lease-took {
		t.Errorf("a claim that took %v on an old lease has %v left of %v", took, k.Left, k.TTL)
	}
	sleep(time.Until(sent.Add(k.Left * 9 / 10)))
	if n := len(claims(t, b, "k")); n != 1 && time.Since(sent) < k.Left {
		t.Errorf("the claim is gone before the %v that were promised", k.Left)
	}
	steps.Leave(t, b, k)
}

// TestLeftCountsFromTheLastKeepAlive: putting a key does not start its lease again.
func TestLeftCountsFromTheLastKeepAlive(t *testing.T) {
	_, b := sceneOfOne(t)
	k := steps.Hold(t, b, steps.TTL(steps.Claim("one"), time.Minute))
	sleep(time.Second)
	other := steps.Hold(t, b, steps.TTL(steps.Claim("two"), time.Minute))
	if other.Left > 59100*time.Millisecond { // real time: a busy machine leaves less
		t.Errorf("a claim that joined a second after its lease was granted has %v left of 1m0s; the server counts from the grant", other.Left)
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
	steps.Leave(t, b, k)
}

func TestCallsEndWithTheirContextWhenTheServerHangs(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Persist(true)))
	b := x.backend()
	held := steps.Hold(t, b, steps.Claim("k"))
	w := steps.Wait(t, b, steps.Claim("k"))
	steps.Must(t, x.server.Pause())
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
		began := time.Now()
		err := call(ctx)
		took := time.Since(began)
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) || took > 2*time.Second {
			t.Errorf("%s on a server that hangs answered %v after %v; want the context's error after 100ms", what, err, took)
		}
		cancel()
	}
	// One that has time left is told of the server, and may ask again.
	began := time.Now()
	_, err := b.Enter(steps.Soon(t), steps.TTL(steps.Claim("other"), 30*time.Minute))
	if took := time.Since(began); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no lease within 2s") || took > 20*time.Second {
		t.Errorf("a new lease on a server that hangs is %v after %v; want that none was granted within 2s", err, took)
	}
	began = time.Now()
	b.Close()
	steps.TookAtMost(t, began, 3*time.Second)
	steps.Must(t, x.server.Continue())
	near := x.backend()
	for l, err := range near.Lines(steps.Soon(t), "") {
		steps.Must(t, err)
		for _, s := range l.Claims { // also what was sent while it hung
			steps.OK(t, near.Break(steps.Soon(t), l.Key, s.Token, driver.Break{Reason: "end of test", Delay: -1}))
		}
	}
}
