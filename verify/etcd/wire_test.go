package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
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
	leave(t, a, hold(t, a, claim("warm")))
	leave(t, b, hold(t, b, claim("warm")))
	asked := func(what string, want map[string]int, do func()) {
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
	const n = 20
	for what, c := range map[string]driver.Claim{
		"mutex": claim("k"), "mutex that does not wait": noWait(claim("k")),
		"read lock": reader("k"), "read lock that does not wait": noWait(reader("k")),
		"permit": permits("s", 1, 3), "permit that does not wait": noWait(permits("s", 1, 3)),
	} {
		asked("a free "+what, map[string]int{"Txn": 2 * n}, func() {
			for range n {
				leave(t, a, hold(t, a, c))
			}
		})
	}
	asked("a mark", map[string]int{"Txn": 3 * n}, func() {
		for range n {
			must(t, a.Leave(soon(t), hold(t, a, claim("k")), driver.Exit{Mark: "m"}))
		}
	})

	held, permit := hold(t, a, claim("k")), hold(t, a, permits("s", 1, 3))
	asked("a refusal", map[string]int{"Txn": 2}, func() { refused(t, b, claim("k")) })
	asked("a permit of a semaphore in use that does not wait", map[string]int{"Txn": 3 + 1}, func() {
		leave(t, b, hold(t, b, noWait(permits("s", 1, 3))))
	})
	asked("a renewal of two claims", map[string]int{"Txn": 1, "LeaseKeepAlive": 1}, func() {
		for _, err := range a.Renew(soon(t), []driver.Ticket{held, permit}) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	leave(t, a, permit)
	permit = hold(t, a, permits("s", 1, 3))
	passing := map[string]int{"Txn": 2, "LeaseGrant": 1}
	asked("Detach", passing, func() { permit = detach(t, a, permit) })
	asked("a renewal by a handle", map[string]int{"Txn": 2, "LeaseKeepAlive": 1}, func() { must(t, renew(t, b, permit)) })
	asked("Adopt", passing, func() { permit = adopt(t, b, permit, another(permit.Claim)) })
	asked("the Leave of an adopted claim", map[string]int{"Txn": 1}, func() { leave(t, b, permit) })

	var w driver.Ticket
	asked("joining a line", map[string]int{"Txn": 2}, func() { w = wait(t, b, claim("k")) })
	// Two reads, and when the other has left a read and a write.
	asked("being granted", map[string]int{"Watch": 1, "Txn": 4 + 1}, func() {
		before := requests(t, x.server)
		done := await(t, b, w)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); sleep(5 * time.Millisecond) {
			if now := requests(t, x.server); now["Watch"] > before["Watch"] && now["Txn"] == before["Txn"]+2 {
				break
			}
		}
		leave(t, a, held)
		w = within(t, 15*time.Second, done)
	})
	next := wait(t, a, claim("k"))
	asked("waiting for three seconds", map[string]int{"Watch": 3, "Txn": 6}, func() {
		for range 3 { // a second each
			now, err := a.Await(soon(t), next)
			if err != nil || now.Granted {
				t.Fatalf("Await answered granted %v, error %v", now.Granted, err)
			}
		}
	})
	leave(t, a, next)
	leave(t, b, w)
}

// TestPushIsFasterThanTheFallback hands a lock to and fro.
func TestPushIsFasterThanTheFallback(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	holder := hold(t, a, claim("k"))
	var took []time.Duration // from the end of a Leave to the next grant
	for range 31 {
		next := wait(t, b, claim("k"))
		done := await(t, b, next)
		leave(t, a, holder)
		left := time.Now()
		holder = within(t, 15*time.Second, done)
		took = append(took, time.Since(left))
		a, b = b, a
	}
	leave(t, a, holder)
	slices.Sort(took)
	if median := took[len(took)/2]; median > 250*time.Millisecond {
		t.Errorf("a hand-over takes %v; want far less than the look after a second", median)
	} else {
		t.Logf("a hand-over takes %v", median)
	}
}

// TestEnterRenewsAnOldLease: a claim that joins on a lease that has run for
// a while has most of a lease even so, and its server agrees.
func TestEnterRenewsAnOldLease(t *testing.T) {
	_, b := sceneOfOne(t)
	leave(t, b, hold(t, b, ttl(claim("k"), lease)))
	sleep(lease * 6 / 10)
	sent := time.Now()
	k := hold(t, b, ttl(claim("k"), lease))
	if k.Left < lease*2/3 {
		t.Errorf("a claim on an old lease has %v left of %v", k.Left, k.TTL)
	}
	sleep(time.Until(sent.Add(k.Left * 9 / 10)))
	if n := len(claims(t, b, "k")); n != 1 && time.Since(sent) < k.Left {
		t.Errorf("the claim is gone before the %v that were promised", k.Left)
	}
	leave(t, b, k)
}

// TestLeftCountsFromTheLastKeepAlive: putting a key does not start its lease again.
func TestLeftCountsFromTheLastKeepAlive(t *testing.T) {
	_, b := sceneOfOne(t)
	k := hold(t, b, ttl(claim("one"), 10*time.Second))
	sleep(time.Second)
	other := hold(t, b, ttl(claim("two"), 10*time.Second))
	if other.Left > 9100*time.Millisecond {
		t.Errorf("a claim that joined a second after its lease was granted has %v left of 10s; the server counts from the grant", other.Left)
	}
	leave(t, b, k)
	leave(t, b, other)
}

func TestTicketHasTheGrantedTTL(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Config("--election-timeout=3000")))
	b := x.backend()
	k := hold(t, b, ttl(claim("k"), lease))
	if k.TTL != 5*time.Second || k.Left > k.TTL || k.Left < 3*time.Second {
		t.Errorf("with an election timeout of 3s a lease of 2s is granted for %v, %v left; want 5s", k.TTL, k.Left)
	}
	leave(t, b, k)
}

func TestCallsEndWithTheirContextWhenTheServerHangs(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Persist(true)))
	b := x.backend()
	held := hold(t, b, claim("k"))
	w := wait(t, b, claim("k"))
	must(t, x.server.Pause())
	for what, call := range map[string]func(ctx context.Context) error{
		"Enter":                  func(ctx context.Context) error { _, err := b.Enter(ctx, claim("other")); return err },
		"Enter with a new lease": func(ctx context.Context) error { _, err := b.Enter(ctx, ttl(claim("other"), time.Hour)); return err },
		"Await":                  func(ctx context.Context) error { _, err := b.Await(ctx, w); return err },
		"Renew":                  func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{held})[0] },
		"Leave":                  func(ctx context.Context) error { return b.Leave(ctx, held, driver.Exit{}) },
		"Break":                  func(ctx context.Context) error { return b.Break(ctx, "k", held.Token, "x", 0) },
		"Line":                   func(ctx context.Context) error { _, err := b.Line(ctx, "k"); return err },
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
	_, err := b.Enter(soon(t), ttl(claim("other"), 30*time.Minute))
	if took := time.Since(began); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no lease within 2s") || took > 5*time.Second {
		t.Errorf("a new lease on a server that hangs is %v after %v; want that none was granted within 2s", err, took)
	}
	began = time.Now()
	b.Close()
	tookAtMost(t, began, 3*time.Second)
	must(t, x.server.Continue())
	near := x.backend()
	for l, err := range near.Lines(soon(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Claims { // also what was sent while it hung
			ok(t, near.Break(soon(t), l.Key, s.Token, "end of test", -1))
		}
	}
}
