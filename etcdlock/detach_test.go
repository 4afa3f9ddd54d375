package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testserver"
)

// leaseOfKey is the lease of the only claim on "k".
func (x *scene) leaseOfKey() clientv3.LeaseID {
	x.t.Helper()
	answer, err := x.etcd.Get(steps.Soon(x.t), x.prefix+"k/p", clientv3.WithRange(x.prefix+"k/x"))
	if err != nil || len(answer.Kvs) != 1 {
		x.t.Fatalf("the line of k has %v, %v; want one claim", answer, err)
	}
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

// TestDetachedClaimNeedsNoProcess: the lease of the holder's process ends, as when it is killed.
func TestDetachedClaimNeedsNoProcess(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := steps.Hold(t, a, c)
		shared := x.leaseOfKey()
		first = steps.Detach(t, a, first)
		x.revoke(shared)
		steps.Must(t, steps.Renew(t, b, first))
		longer := first
		longer.TTL = 2 * first.TTL
		steps.Must(t, steps.Renew(t, b, longer))
		own := steps.Claim("own") // on the shared lease of b
		own.TTL = longer.TTL
		held := steps.Hold(t, b, own)
		left, err := x.etcd.TimeToLive(steps.Soon(t), x.leaseOfKey(), clientv3.WithAttachedKeys())
		if err != nil || len(left.Keys) != 1 || left.GrantedTTL != int64(longer.TTL/time.Second) {
			t.Errorf("the lease of a detached claim is %+v, %v; want one of its own", left, err)
		}
		steps.Leave(t, b, held)
		steps.Leave(t, b, steps.Adopt(t, b, first, steps.Another(c)))
		x.remove(x.prefix+"k/z", clientv3.WithPrefix())
	})
}

// TestDetachLosesItsAnswer: Renew keeps the claim alive, and a Detach that was sent before a
// renewal does not put the claim on an older lease after it.
func TestDetachLosesItsAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		skip  int  // the transactions before the one that loses its answer
		early bool // it arrives before the renewal
		moves bool
	}{
		"of its read":  {},
		"of its write": {skip: 1, early: true, moves: true},
		"of its write, which arrives after Renew": {skip: 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
				a, kv := x.delayed()
				b := x.backend()
				first := steps.Hold(t, a, c)
				shared := x.leaseOfKey()
				kv.skip = test.skip
				late := kv.hold(t, func() error { return a.(driver.Detacher).Detach(steps.Soon(t), first) })
				if !test.early {
					steps.Must(t, steps.Renew(t, a, first))
				}
				answer, err := late()
				if test.skip > 0 && (err != nil || answer.Succeeded != test.moves) {
					t.Errorf("the late Detach: %+v, %v; want it to succeed: %v", answer, err, test.moves)
				}
				steps.Same(t, "the claim has moved", x.leaseOfKey() != shared, test.moves)
				steps.Must(t, steps.Renew(t, a, first))
				steps.Leave(t, b, steps.Adopt(t, b, steps.Detach(t, a, first), steps.Another(c)))
				x.remove(x.prefix+"k/z", clientv3.WithPrefix())
			})
		})
	}
}

// TestRenewDuringDetach: the claim is on a lease that is younger than the renewal.
func TestRenewDuringDetach(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		first := steps.Hold(t, a, c)
		sent, before := 0, map[clientv3.LeaseID]bool{}
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			if sent++; sent == 2 { // the write of Detach
				kv.pass()
				for _, id := range x.leases() {
					before[id] = true
				}
				steps.Must(t, steps.Renew(t, a, first))
			}
			return send()
		}
		first = steps.Detach(t, a, first)
		if before[x.leaseOfKey()] {
			t.Error("a claim was moved to a lease that is older than its renewal")
		}
		steps.Leave(t, a, first)
	})
}

// TestAdoptLosesItsAnswer: the repeated Adopt finds the claim, or is the first to arrive.
func TestAdoptLosesItsAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		skip  int // the transactions before the one that loses its answer
		early bool
	}{
		"of its read":  {},
		"of its write": {skip: 1, early: true},
		"of its write, which arrives after the repeat": {skip: 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
				a := x.backend()
				b, kv := x.delayed()
				first := steps.Detach(t, a, steps.Hold(t, a, c))
				by := steps.Another(c)
				kv.skip = test.skip
				late := kv.hold(t, func() error { return steps.ErrOf(b.(driver.Detacher).Adopt(steps.Soon(t), first, by)) })
				if test.early {
					steps.OK(t, steps.ErrOf(late()))
				}
				got := steps.Adopt(t, b, first, by)
				if !test.early {
					answer, err := late()
					if err != nil || test.skip > 0 && answer.Succeeded {
						t.Errorf("the late Adopt: %+v, %v", answer, err)
					}
				}
				steps.OK(t, steps.Renew(t, b, got))
				_, err := a.Adopt(steps.Soon(t), first, steps.Another(c))
				steps.Is(t, "Adopt by another", err, driverutil.Adopted)
				steps.Leave(t, b, got)
				x.remove(x.prefix+"k/z", clientv3.WithPrefix())
			})
		})
	}
}

// TestAdoptWithoutAnAnswerEnds: though the process that sent it goes on to renew other claims
// of the same TTL.
func TestAdoptWithoutAnAnswerEnds(t *testing.T) {
	x, a, next := sceneOfTwo(t)
	b, kv := x.delayed()
	const lease = 8 * time.Second // other must be renewed in time
	other := steps.Hold(t, b, steps.TTL(steps.Claim("other"), lease))
	first := steps.Detach(t, a, steps.Hold(t, a, steps.Claim("k")))
	kv.skip = 1
	late := kv.hold(t, func() error {
		return steps.ErrOf(b.(driver.Detacher).Adopt(steps.Soon(t), first, steps.TTL(steps.Claim("k"), lease)))
	})
	steps.Must(t, steps.ErrOf(late()))
	testserver.Eventually(t, time.Minute, "a claim whose Adopt was not answered ends", func() bool {
		steps.Must(t, steps.Renew(t, b, other))
		return len(claims(t, next, "k")) == 0
	})
	steps.Leave(t, b, other)
}

// TestWaiterSeesAClaimThroughItsAdoption: the puts of Detach and Adopt are no Leave, and the
// Leave of the new holder wakes the waiter.
func TestWaiterSeesAClaimThroughItsAdoption(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := steps.Hold(t, a, c)
		waiting := steps.Await(t, b, steps.Wait(t, b, steps.Another(c)))
		sleep(100 * time.Millisecond)
		got := steps.Adopt(t, b, steps.Detach(t, a, first), steps.Another(c))
		select {
		case <-waiting:
			t.Fatal("a waiter was granted when another process adopted the claim before it")
		case <-time.After(1500 * time.Millisecond):
		}
		steps.Leave(t, b, got)
		next := steps.Within(t, time.Minute, waiting)
		steps.Leave(t, b, next)
	})
}

// TestDetachRefusesWhatIsNoHolder: a claim that waits, that is gone or damaged.
func TestDetachRefusesWhatIsNoHolder(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	first := steps.Hold(t, a, steps.Claim("k"))
	w := steps.Wait(t, a, steps.Claim("k"))
	steps.Gone(t, "Detach of a claim that waits", a.Detach(steps.Soon(t), w))
	steps.Leave(t, a, w)
	name := x.keys("k/w")[0]
	was := x.value(name)
	x.put(name, `{"v":1,"id":"`+first.ID+`"}`)
	steps.Permanent(t, "Detach of a damaged claim", a.Detach(steps.Soon(t), first))
	steps.Permanent(t, "Adopt of a damaged claim", steps.ErrOf(b.Adopt(steps.Soon(t), first, steps.Claim("k"))))
	steps.Must(t, steps.ErrOf(x.etcd.Put(context.Background(), name, was)))
	steps.Leave(t, a, first)
	steps.Gone(t, "Detach of a claim that has left", a.Detach(steps.Soon(t), first))
}

// TestRenewMovesToALongerLease: a fixed lease waits with a short one and takes its full
// length on the grant, by a renewal.
func TestRenewMovesToALongerLease(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b, near := x.backend(), x.backend()
	const lease = 20 * time.Second
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
	far := backend(t, dial(t, beforeEach(func(_ context.Context, method string) {
		if strings.HasSuffix(method, "/Txn") {
			others = append(others, steps.Hold(t, near, steps.Permits("k", 1, size)))
		}
	}), x.server.Addr()), x.prefix)
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
