package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestRenewMovesToALongerLease: a fixed lease waits with a short one and takes its full
// length on the grant, by a renewal.
func TestRenewMovesToALongerLease(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b, near := x.backend(), x.backend()
	renewed, entered := steps.Hold(t, b, steps.TTL(steps.Claim("renewed"), lease)), steps.Hold(t, b, steps.TTL(steps.Claim("entered"), lease))
	first, short := claims(t, near, "renewed")[0], x.leases()
	renewed.TTL, entered.TTL = time.Minute, time.Minute
	steps.Must(t, steps.Renew(t, b, renewed))
	if again := steps.Hold(t, b, entered.Claim); again.TTL != time.Minute || again.Left != time.Minute || again.Token != entered.Token {
		t.Errorf("a repeated Enter with a longer lease answered %+v", again)
	}
	x.revoke(short...) // as if it had ended
	for _, k := range []driver.Ticket{renewed, entered} {
		l := claims(t, near, k.Key)
		if len(l) != 1 || l[0].Token != k.Token || l[0].Left < lease {
			t.Errorf("a claim that was moved to a longer lease is %+v", l)
		} else if k.Key == "renewed" && !l[0].Since.Equal(first.Since) {
			t.Errorf("a renewal changed since when it is held")
		}
		steps.Leave(t, b, k)
	}
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
				others = append(others, steps.Hold(t, near, steps.Permits("k", 1, size)))
			}
			return send(ctx, method, q, a, cc, opts...)
		},
	)}}, x.server.Addr()), x.prefix)
	c := steps.Permits("k", 1, size)
	ticket, err := far.Enter(steps.Soon(t), steps.NoWait(c))
	if err == nil {
		t.Fatalf("Enter answered %+v; want an error after %d other claims came first", ticket, len(others))
	}
	steps.Same(t, "claims are in line", len(claims(t, near, "k")), len(others))
	if ticket, err = far.Enter(steps.Soon(t), c); err != nil || !ticket.Granted {
		t.Errorf("Enter without NoWait answered %+v, %v; want a grant", ticket, err)
	}
	for _, held := range append(others, ticket) {
		steps.Leave(t, near, held)
	}
}

// TestTicketOfAnotherBackendIsRenewed hangs on a lease that this one does not know.
func TestTicketOfAnotherBackendIsRenewed(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	const long = 3 * lease
	k := steps.Hold(t, a, steps.TTL(steps.Claim("k"), long))
	for range 2 {
		sleep(long * 6 / 10)
		steps.Must(t, steps.Renew(t, b, k))
	}
	k.TTL = time.Minute
	steps.Must(t, steps.Renew(t, b, k))
	sleep(long + lag)
	steps.OK(t, steps.Renew(t, a, k))
	steps.Must(t, a.Leave(steps.Soon(t), k, driver.Exit{Linger: time.Minute}))
	for _, view := range []driver.Backend{a, b} {
		steps.Gone(t, "Renew of a claim that lingers", steps.Renew(t, view, k))
	}
	steps.OK(t, b.Break(steps.Soon(t), "k", k.Token, driver.Break{Reason: "end", Delay: -1}))
}

// sending sends a transaction.
type sending = func() (*clientv3.TxnResponse, error)

// delaying is a KV whose transactions a test holds up.
type delaying struct {
	clientv3.KV
	commit    func(sending) (*clientv3.TxnResponse, error)
	skip      int    // how many transactions pass before hold holds one up
	meanwhile func() // what happens before the transaction fails
}

func (d *delaying) Txn(ctx context.Context) clientv3.Txn {
	return &delayed{d.KV.Txn(context.WithoutCancel(ctx)), d}
}

type delayed struct {
	clientv3.Txn
	by *delaying
}

func (d *delayed) If(ifs ...clientv3.Cmp) clientv3.Txn    { d.Txn = d.Txn.If(ifs...); return d }
func (d *delayed) Then(ops ...clientv3.Op) clientv3.Txn   { d.Txn = d.Txn.Then(ops...); return d }
func (d *delayed) Else(ops ...clientv3.Op) clientv3.Txn   { d.Txn = d.Txn.Else(ops...); return d }
func (d *delayed) Commit() (*clientv3.TxnResponse, error) { return d.by.commit(d.Txn.Commit) }

// delayed returns a Backend whose transactions pass until they are held up.
func (x *scene) delayed() (driver.Backend, *delaying) {
	x.t.Helper()
	etcd := client(x.t, x.server)
	d := &delaying{KV: etcd.KV}
	d.pass()
	etcd.KV = d
	return backend(x.t, etcd, x.prefix), d
}

func (d *delaying) pass() {
	d.commit = func(send sending) (*clientv3.TxnResponse, error) { return send() }
}

// hold holds up a transaction of call, which fails then, and returns what sends it.
func (d *delaying) hold(t *testing.T, call func() error) (late sending) {
	t.Helper()
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		if d.skip > 0 {
			d.skip--
			return send()
		}
		late = send
		d.pass()
		if d.meanwhile != nil {
			d.meanwhile()
		}
		return nil, errors.New("it is under way")
	}
	if err := call(); err == nil || late == nil {
		t.Fatalf("the call was not held up: %v", err)
	}
	return late
}
