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

// leaseOf is the lease of the only claim on a key.
func (x *scene) leaseOf(key string) clientv3.LeaseID {
	x.t.Helper()
	answer, err := x.etcd.Get(steps.Soon(x.t), x.prefix+key+"/p", clientv3.WithRange(x.prefix+key+"/x"))
	if err != nil || len(answer.Kvs) != 1 {
		x.t.Fatalf("the line of %s has %v, %v; want one claim", key, answer, err)
	}
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

// TestDetachedClaimNeedsNoProcess: the lease of the holder's process ends, as when it is killed.
func TestDetachedClaimNeedsNoProcess(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := steps.Hold(t, a, c)
		shared := x.leaseOf("k")
		first = steps.Detach(t, a, first)
		x.revoke(shared)
		steps.Must(t, steps.Renew(t, b, first))
		longer := first
		longer.TTL = 2 * first.TTL
		steps.Must(t, steps.Renew(t, b, longer))
		own := steps.Claim("own") // on the shared lease of b
		own.TTL = longer.TTL
		held := steps.Hold(t, b, own)
		left, err := x.etcd.TimeToLive(steps.Soon(t), x.leaseOf("k"), clientv3.WithAttachedKeys())
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
				shared := x.leaseOf("k")
				kv.skip = test.skip
				late := kv.hold(t, func() error { return a.(driver.Detacher).Detach(steps.Soon(t), first) })
				if !test.early {
					steps.Must(t, steps.Renew(t, a, first))
				}
				answer, err := late()
				if test.skip > 0 && (err != nil || answer.Succeeded != test.moves) {
					t.Errorf("the late Detach: %+v, %v; want it to succeed: %v", answer, err, test.moves)
				}
				steps.Same(t, "the claim has moved", x.leaseOf("k") != shared, test.moves)
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
		if before[x.leaseOf("k")] {
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
	other := steps.Hold(t, b, steps.Claim("other"))
	first := steps.Detach(t, a, steps.Hold(t, a, steps.Claim("k")))
	kv.skip = 1
	late := kv.hold(t, func() error { return steps.ErrOf(b.(driver.Detacher).Adopt(steps.Soon(t), first, steps.Claim("k"))) })
	steps.Must(t, steps.ErrOf(late()))
	if x.leaseOf("k") == x.leaseOf("other") {
		t.Error("the claim whose Adopt was not answered shares the lease of its process")
	}
	x.revoke(x.leaseOf("k")) // as if it had ended
	steps.OK(t, steps.Renew(t, b, other))
	steps.InLine(t, "when its lease has ended", next, "k", 0)
	steps.Leave(t, b, other)
}

// TestDetachRefusesWhatIsNoHolder: a claim that waits, that is gone or damaged.
func TestDetachRefusesWhatIsNoHolder(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	first := steps.Hold(t, a, steps.Claim("k"))
	w := steps.Wait(t, a, steps.Claim("k"))
	steps.Gone(t, "Detach of a claim that waits", a.Detach(steps.Soon(t), w))
	steps.Leave(t, a, w)
	name := x.keys("k/w")[0]
	x.put(name, `{"v":1,"id":"`+first.ID+`"}`)
	steps.Permanent(t, "Detach of a damaged claim", a.Detach(steps.Soon(t), first))
	steps.Permanent(t, "Adopt of a damaged claim", steps.ErrOf(b.Adopt(steps.Soon(t), first, steps.Claim("k"))))
	x.remove(name)
}

// TestRenewMovesToALongerLease: a fixed lease waits with a short one and takes its full
// length on the grant, by a renewal.
func TestRenewMovesToALongerLease(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b, near := x.backend(), x.backend()
	renewed, entered := steps.Hold(t, b, steps.Claim("renewed")), steps.Hold(t, b, steps.Claim("entered"))
	lease, first, short := renewed.TTL, claims(t, near, "renewed")[0], x.leases()
	renewed.TTL, entered.TTL = time.Hour, time.Hour
	steps.Must(t, steps.Renew(t, b, renewed))
	if again := steps.Hold(t, b, entered.Claim); again.TTL != time.Hour || again.Left != time.Hour || again.Token != entered.Token {
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
	others := 0
	far := backend(t, dial(t, beforeEach(func(_ context.Context, method string) {
		if strings.HasSuffix(method, "/Txn") {
			steps.Hold(t, near, steps.Permits("k", 1, size))
			others++
		}
	}), x.server.Addr()), x.prefix)
	c := steps.Permits("k", 1, size)
	ticket, err := far.Enter(steps.Soon(t), steps.NoWait(c))
	if err == nil {
		t.Fatalf("Enter answered %+v; want an error after %d other claims came first", ticket, others)
	}
	steps.Same(t, "claims are in line", len(claims(t, near, "k")), others)
	if ticket, err = far.Enter(steps.Soon(t), c); err != nil || !ticket.Granted {
		t.Errorf("Enter without NoWait answered %+v, %v; want a grant", ticket, err)
	}
	x.remove(x.prefix, clientv3.WithPrefix())
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
