package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/driver"
)

// TestRenewMovesToALongerLease: a fixed lease waits with a short one and takes its full
// length on the grant, by a renewal.
func TestRenewMovesToALongerLease(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, near := x.backend(), x.backend()
	renewed, entered := hold(t, b, ttl(claim("renewed"), lease)), hold(t, b, ttl(claim("entered"), lease))
	first := claims(t, near, "renewed")[0]
	renewed.TTL, entered.TTL = time.Minute, time.Minute
	must(t, renew(t, b, renewed))
	if again := hold(t, b, entered.Claim); again.TTL != time.Minute || again.Left != time.Minute || again.Token != entered.Token {
		t.Errorf("a repeated Enter with a longer lease answered %+v", again)
	}
	sleep(lease + lag)
	for _, k := range []driver.Ticket{renewed, entered} {
		l := claims(t, near, k.Key)
		if len(l) != 1 || l[0].Token != k.Token || l[0].Left < lease {
			t.Errorf("a claim that was moved to a longer lease is %+v", l)
		} else if k.Key == "renewed" && !l[0].Since.Equal(first.Since) {
			t.Errorf("a renewal changed since when it is held")
		}
		leave(t, b, k)
	}
}

// TestWaiterThatGivesUpGrantsNobody: the claim before a waiter is a waiter too. When it
// leaves, the holder is still there.
func TestWaiterThatGivesUpGrantsNobody(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	holder, quits, last := hold(t, a, claim("k")), wait(t, a, claim("k")), wait(t, b, claim("k"))
	answer := make(chan driver.Ticket, 1)
	go func() {
		now, err := b.Await(soon(t), last)
		if err != nil {
			t.Error(err)
		}
		answer <- now
	}()
	sleep(100 * time.Millisecond)
	leave(t, a, quits)
	if now := <-answer; now.Granted || now.Ahead != 1 || now.Head == nil || now.Head.Token != holder.Token {
		t.Errorf("after the one before it gave up a waiter is told %+v; want it to wait for the holder", now)
	}
	done := await(t, b, last) // it watches the holder now
	sleep(100 * time.Millisecond)
	left := time.Now()
	leave(t, a, holder)
	last = within(t, 20*time.Second, done)
	tookAtMost(t, left, 800*time.Millisecond)
	leave(t, b, last)
}

// TestTryThatIsAlwaysOvertakenGivesUp: while a claim looks whether a semaphore has room for
// it, another joins, each time.
func TestTryThatIsAlwaysOvertakenGivesUp(t *testing.T) {
	t.Parallel()
	const size = 1000
	x := newScene(t)
	near := x.backend()
	var others []driver.Ticket
	far := backend(t, dial(t, clientv3.Config{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, q, a any, cc *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/Txn") {
				others = append(others, hold(t, near, permits("k", 1, size)))
			}
			return send(ctx, method, q, a, cc, opts...)
		},
	)}}, x.server.Addr()), x.prefix)
	c := permits("k", 1, size)
	ticket, err := far.Enter(soon(t), noWait(c))
	if err == nil {
		t.Fatalf("Enter answered %+v; want an error after %d other claims came first", ticket, len(others))
	}
	if got := claims(t, near, "k"); len(got) != len(others) {
		t.Errorf("%d claims are in line; want the %d others alone", len(got), len(others))
	}
	if ticket, err = far.Enter(soon(t), c); err != nil || !ticket.Granted {
		t.Errorf("Enter without NoWait answered %+v, %v; want a grant", ticket, err)
	}
	for _, held := range append(others, ticket) {
		leave(t, near, held)
	}
}

// TestRepeatedEnterRenewsTheLease: the caller counts from its repeat.
func TestRepeatedEnterRenewsTheLease(t *testing.T) {
	x, b := sceneOfOne(t)
	const long = 8 * time.Second
	c := ttl(claim("k"), long)
	hold(t, b, c)
	sleep(long / 5)
	sent := time.Now()
	k := hold(t, b, c)
	sleep(time.Until(sent.Add(k.Left - 200*time.Millisecond)))
	if n := len(claims(t, x.backend(), "k")); n != 1 && time.Since(sent) < k.Left {
		t.Errorf("the claim is gone %v after a repeat that promised %v", time.Since(sent), k.Left)
	}
	leave(t, b, k)
}

// TestTicketOfAnotherBackendIsRenewed hangs on a lease that this one does not know.
func TestTicketOfAnotherBackendIsRenewed(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	const long = 3 * lease
	k := hold(t, a, ttl(claim("k"), long))
	for range 2 {
		sleep(long * 6 / 10)
		must(t, renew(t, b, k))
	}
	k.TTL = time.Minute
	must(t, renew(t, b, k))
	sleep(long + lag)
	ok(t, renew(t, a, k))
	must(t, a.Leave(soon(t), k, driver.Exit{Linger: time.Minute}))
	for _, view := range []driver.Backend{a, b} {
		wantGone(t, "Renew of a claim that lingers", renew(t, view, k))
	}
	ok(t, b.Break(soon(t), "k", k.Token, "end", -1))
}
