package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

//verify:fault etcd | the store is restarted
func TestRestartKeepsClaims(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Persist(true)))
	outlivesRestart(t, x.backend(), x.backend(), func() { steps.Must(t, x.server.Restart()) })
}

//verify:fault etcd | lease revoked, or session expired
func TestRevokedLeaseIsALoss(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	a, b := x.backend(), x.backend()
	one, two := steps.Hold(t, a, steps.Claim("one")), steps.Hold(t, a, steps.Claim("two"))
	next := steps.Wait(t, b, steps.Claim("one"))
	other := steps.Hold(t, b, steps.Claim("other"))
	for _, id := range x.leases() {
		if l, err := x.etcd.TimeToLive(steps.Soon(t), id, clientv3.WithAttachedKeys()); err != nil {
			t.Fatal(err)
		} else if len(l.Keys) == 2 && strings.Contains(fmt.Sprintf("%s", l.Keys), "/two/") {
			x.revoke(id)
		}
	}
	next = steps.Granted(t, b, next)
	steps.Rises(t, one.Token, next.Token)
	for _, err := range a.Renew(steps.Soon(t), []driver.Ticket{one, two}) {
		steps.Gone(t, "Renew after the lease was revoked", err)
	}
	steps.OK(t, steps.Renew(t, b, other))
	steps.Gone(t, "Leave after the lease was revoked", a.Leave(steps.Soon(t), one, driver.Exit{Mark: "late"}))
	// The lease is not used again, and no claim is put on it.
	steps.Leave(t, a, steps.Hold(t, a, steps.Claim("two")))
	steps.Leave(t, b, next)
	steps.Leave(t, b, other)
	x.revoke(x.leases()...)
	steps.Leave(t, a, steps.Hold(t, a, steps.Claim("two"))) // it finds out
}

//verify:fault etcd | key deleted
func TestDeletedKeyIsALossOfThatClaimAlone(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	one, two := steps.Hold(t, a, steps.Claim("one")), steps.Hold(t, a, steps.Claim("two"))
	x.remove(x.prefix+"one/", clientv3.WithPrefix())
	errs := a.Renew(steps.Soon(t), []driver.Ticket{one, two})
	if !driver.Gone(errs[0]) || errs[1] != nil {
		t.Errorf("Renew answered %v; want GoneError for the claim whose key was deleted, and nil for the other", errs)
	}
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("one")))
	steps.Leave(t, a, two)
}

// TestLostAnswers cuts the connection after each kind of step was applied and
// before its answer came.
//
//verify:fault etcd | connection lost in create, and in delete
//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	p := faultproxy.Start(t, x.server.Addr(), faultproxy.Framer{})
	var passing atomic.Int64 // how many transactions are still answered; none is counted below 0
	etcd := dial(t, beforeEach(func(_ context.Context, method string) {
		if strings.HasSuffix(method, "/Txn") && passing.Add(-1) == -1 {
			p.Discard(faultproxy.ToClient)
		}
	}), p.Addr())
	far, near := backend(t, etcd, x.prefix), x.backend()
	// lost sends one call that has so many answers before one does not come.
	lost := func(what string, answers int64, applied func() bool, call func(ctx context.Context) error) {
		t.Helper()
		passing.Store(answers)
		answer, ctx := make(chan error, 1), steps.Soon(t)
		go func() { answer <- call(ctx) }()
		testserver.Eventually(t, time.Minute, what+" is applied", applied)
		p.Cut()
		p.Resume()
		steps.Unknown(t, what+" whose answer was lost", <-answer)
	}
	inLine := func(want int) func() bool { return func() bool { return len(claims(t, near, "k")) == want } }
	passing.Store(1000)
	steps.Leave(t, far, steps.Hold(t, far, steps.Claim("warm"))) // the connection stands, and a lease

	c := steps.Claim("k")
	lost("Enter", 0, inLine(1), func(ctx context.Context) error { _, err := far.Enter(ctx, c); return err })
	held := steps.PersistEnter(t, far, c)
	if !held.Granted || !inLine(1)() {
		t.Fatalf("after a repeated Enter there is not one granted claim: %+v", held)
	}

	waits := steps.Claim("k")
	lost("Enter of a waiter", 1, inLine(2), func(ctx context.Context) error { _, err := far.Enter(ctx, waits); return err })
	steps.PersistLeave(t, far, driver.Ticket{Claim: waits}, driver.Exit{Tombstone: true})
	steps.Gone(t, "an Enter delayed beyond its Leave", steps.ErrOf(far.Enter(steps.Soon(t), waits)))

	done := func(ctx context.Context) error { return far.Leave(ctx, held, driver.Exit{Mark: "done"}) }
	lost("Leave", 1, inLine(0), done) // after the reading of the mark
	steps.Persist(t, "the repeated Leave", done)
	next := steps.Hold(t, near, steps.Claim("k"))
	steps.Same(t, "the mark", next.Mark, "done")
	steps.Leave(t, near, next)
}

// beforeEach calls f before each request of a client.
func beforeEach(f func(ctx context.Context, method string)) clientv3.Config {
	return clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(
			ctx context.Context, method string, q, a any, c *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			f(ctx, method)
			return send(ctx, method, q, a, c, opts...)
		},
	)}}
}

// A member that has just lost its leader may lose a request for a lease. The claim needs it, and has time left.
//
//verify:fault etcd | the request for a lease is lost
func TestLostRequestForALeaseIsSentAgain(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	var sent atomic.Int64
	etcd := dial(t, beforeEach(func(ctx context.Context, method string) {
		if strings.HasSuffix(method, "/LeaseGrant") && sent.Add(1) == 1 {
			<-ctx.Done()
		}
	}), x.server.Addr())
	b := backend(t, etcd, x.prefix)
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	if n := sent.Load(); n < 2 {
		t.Errorf("%d request for a lease, and the first of them was lost", n)
	}
}

// TestHungMemberDoesNotStopRenewals: a client asks its members in turn, so of the two
// requests that a renewal is, one meets the member that hangs.
func TestHungMemberDoesNotStopRenewals(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	p := faultproxy.Start(t, x.server.Addr(), faultproxy.Framer{})
	b := backend(t, dial(t, clientv3.Config{}, p.Addr(), x.server.Addr()), x.prefix)
	held := steps.Hold(t, b, steps.Claim("k"))
	for range 4 { // both members are connected
		steps.Must(t, steps.Renew(t, b, held))
	}
	p.Hold(faultproxy.ToServer, faultproxy.ToClient)
	for range 3 {
		steps.OK(t, steps.Renew(t, b, held))
	}
	p.Cut()
	p.Resume()
	steps.PersistLeave(t, b, held)
}

// TestCompactionWhileWaiting compacts what a waiter has not seen: before it watches, and
// while it is cut off.
//
//verify:fault etcd | compaction while waiting
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	p := faultproxy.Start(t, x.server.Addr(), faultproxy.Framer{})
	far, near := backend(t, dial(t, clientv3.Config{}, p.Addr()), x.prefix), x.backend()
	compact := func() {
		t.Helper()
		for range 10 {
			x.put("elsewhere", "x")
		}
		steps.Must(t, steps.ErrOf(x.etcd.Compact(steps.Soon(t), x.remove("elsewhere"), clientv3.WithCompactPhysical())))
	}
	first := steps.Hold(t, near, steps.Claim("k"))
	w := steps.Wait(t, far, steps.Claim("k"))
	compact()
	began := time.Now()
	for range 2 {
		now, err := far.Await(steps.Soon(t), w)
		if err != nil || now.Granted {
			t.Fatalf("Await after a compaction answered granted %v, error %v", now.Granted, err)
		}
	}
	if took := time.Since(began); took < time.Second/2 {
		t.Errorf("two Awaits took %v; want a second each", took)
	}
	waiting := steps.Await(t, far, w)
	watched(t, x.server)
	p.Refuse()
	steps.Leave(t, near, first)
	compact() // the waiter never hears of the Leave
	p.Resume()
	steps.Leave(t, near, steps.Within(t, time.Minute, waiting))
}

// silent swallows and counts the events of a watch, as if its member were cut off.
type silent struct {
	grpc.ClientStream
	swallowed *atomic.Int64
}

func (s silent) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		if r, ok := m.(interface{ GetCreated() bool }); !ok || r.GetCreated() {
			return nil
		}
		s.swallowed.Add(1)
	}
}

//verify:fault etcd | watch lost
func TestLostWatchFallsBackToReading(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	var swallowed, read atomic.Int64
	config := clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, d, cc, method, opts...)
			if err == nil && strings.HasSuffix(method, "/Watch") {
				s = silent{s, &swallowed}
			}
			return s, err
		},
	), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, q, a any, c *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			defer read.Add(1)
			return send(ctx, method, q, a, c, opts...)
		},
	)}}
	far, near := backend(t, dial(t, config, x.server.Addr()), x.prefix), x.backend()
	for _, next := range []driver.Claim{steps.Claim("k"), steps.Reader("k")} {
		holder := steps.Hold(t, near, steps.Claim("k"))
		w := steps.Wait(t, far, next)
		before := read.Load()
		waiting, ctx := make(chan error, 1), steps.Soon(t)
		go func() { // the calls go on for as long as the test has
			now, err := w, error(nil)
			for err == nil && !now.Granted {
				now, err = far.Await(ctx, now)
			}
			waiting <- err
		}()
		testserver.Eventually(t, time.Minute, "the line is read before and after the watch is open", func() bool {
			return read.Load() >= before+2
		})
		steps.Leave(t, near, holder)
		steps.Must(t, <-waiting)
		steps.Leave(t, far, w)
	}
	if swallowed.Load() == 0 {
		t.Error("no event of a watch was swallowed: the watch was not lost")
	}
}

func TestLowMaxTxnOpsIsNamedInTheError(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t, testserver.Config("--max-txn-ops=50")))
	b := x.backend()
	var ts []driver.Ticket
	for range 60 {
		ts = append(ts, steps.Hold(t, b, steps.Claim(newPrefix())))
	}
	err := b.Renew(steps.Soon(t), ts)[0]
	steps.Permanent(t, "Renew of 60 claims", err)
	if !strings.Contains(err.Error(), "max-txn-ops") {
		t.Errorf("Renew of 60 claims answered %v; want it to name max-txn-ops", err)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
}

func TestClosedClientIsNamedInTheError(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	b := backend(t, c, "")
	c.Close()
	_, err := b.Enter(steps.Soon(t), steps.Claim("k"))
	steps.Permanent(t, "Enter with a closed client", err)
}
