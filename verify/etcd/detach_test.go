package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

func detach(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	must(t, b.(driver.Detacher).Detach(soon(t), ticket))
	ticket.Detached = true
	return ticket
}

func adopt(t testing.TB, b driver.Backend, ticket driver.Ticket, by driver.Claim) driver.Ticket {
	t.Helper()
	got, err := b.(driver.Detacher).Adopt(soon(t), ticket, by)
	if err != nil || !got.Granted || got.Token != ticket.Token {
		t.Fatalf("Adopt of %+v: %+v, %v", ticket, got, err)
	}
	return got
}

// leaseOfKey is the lease of the only claim on "k".
func (x *scene) leaseOfKey() clientv3.LeaseID {
	x.t.Helper()
	answer, err := x.etcd.Get(soon(x.t), x.prefix+"k/p", clientv3.WithRange(x.prefix+"k/x"))
	if err != nil || len(answer.Kvs) != 1 {
		x.t.Fatalf("the line of k has %v, %v; want one claim", answer, err)
	}
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

// TestDetachedClaimNeedsNoProcess: the lease of the holder's process ends, as when it is killed.
func TestDetachedClaimNeedsNoProcess(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := hold(t, a, c)
		shared := x.leaseOfKey()
		first = detach(t, a, first)
		x.revoke(shared)
		must(t, renew(t, b, first))
		longer := first
		longer.TTL = 2 * first.TTL
		must(t, renew(t, b, longer))
		own := claim("own") // on the shared lease of b
		own.TTL = longer.TTL
		held := hold(t, b, own)
		left, err := x.etcd.TimeToLive(soon(t), x.leaseOfKey(), clientv3.WithAttachedKeys())
		if err != nil || len(left.Keys) != 1 || left.GrantedTTL != int64(longer.TTL/time.Second) {
			t.Errorf("the lease of a detached claim is %+v, %v; want one of its own", left, err)
		}
		leave(t, b, held)
		leave(t, b, adopt(t, b, first, another(c)))
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
				first := hold(t, a, c)
				shared := x.leaseOfKey()
				kv.skip = test.skip
				late := kv.hold(t, func() error { return a.(driver.Detacher).Detach(soon(t), first) })
				if !test.early {
					must(t, renew(t, a, first))
				}
				answer, err := late()
				if test.skip > 0 && (err != nil || answer.Succeeded != test.moves) {
					t.Errorf("the late Detach: %+v, %v; want it to succeed: %v", answer, err, test.moves)
				}
				if moved := x.leaseOfKey() != shared; moved != test.moves {
					t.Errorf("the claim has moved: %v; want %v", moved, test.moves)
				}
				must(t, renew(t, a, first))
				leave(t, b, adopt(t, b, detach(t, a, first), another(c)))
				x.remove(x.prefix+"k/z", clientv3.WithPrefix())
			})
		})
	}
}

// TestRenewDuringDetach: the claim is on a lease that is younger than the renewal.
func TestRenewDuringDetach(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		first := hold(t, a, c)
		sent, before := 0, map[clientv3.LeaseID]bool{}
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			if sent++; sent == 2 { // the write of Detach
				kv.pass()
				for _, id := range x.leases() {
					before[id] = true
				}
				must(t, renew(t, a, first))
			}
			return send()
		}
		first = detach(t, a, first)
		if before[x.leaseOfKey()] {
			t.Error("a claim was moved to a lease that is older than its renewal")
		}
		leave(t, a, first)
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
				first := detach(t, a, hold(t, a, c))
				by := another(c)
				kv.skip = test.skip
				late := kv.hold(t, func() error { return errOf(b.(driver.Detacher).Adopt(soon(t), first, by)) })
				if test.early {
					ok(t, errOf(late()))
				}
				got := adopt(t, b, first, by)
				if !test.early {
					answer, err := late()
					if err != nil || test.skip > 0 && answer.Succeeded {
						t.Errorf("the late Adopt: %+v, %v", answer, err)
					}
				}
				ok(t, renew(t, b, got))
				if _, err := a.Adopt(soon(t), first, another(c)); !errors.Is(err, driver.Adopted) {
					t.Errorf("Adopt by another: %v; want %v", err, driver.Adopted)
				}
				leave(t, b, got)
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
	other := hold(t, b, ttl(claim("other"), lease))
	first := detach(t, a, hold(t, a, claim("k")))
	kv.skip = 1
	late := kv.hold(t, func() error {
		return errOf(b.(driver.Detacher).Adopt(soon(t), first, ttl(claim("k"), lease)))
	})
	must(t, errOf(late()))
	for end := time.Now().Add(lease + lag); len(claims(t, next, "k")) > 0; sleep(lease / 4) {
		if time.Now().After(end) {
			t.Fatal("a claim whose Adopt was not answered does not end")
		}
		must(t, renew(t, b, other))
	}
	leave(t, b, other)
}

// TestWaiterSeesAClaimThroughItsAdoption: the puts of Detach and Adopt are no Leave, and the
// Leave of the new holder wakes the waiter.
func TestWaiterSeesAClaimThroughItsAdoption(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := hold(t, a, c)
		waiting := await(t, b, wait(t, b, another(c)))
		sleep(100 * time.Millisecond)
		got := adopt(t, b, detach(t, a, first), another(c))
		select {
		case <-waiting:
			t.Fatal("a waiter was granted when another process adopted the claim before it")
		case <-time.After(1500 * time.Millisecond):
		}
		left := time.Now()
		leave(t, b, got)
		next := within(t, 5*time.Second, waiting)
		tookAtMost(t, left, time.Second)
		leave(t, b, next)
	})
}

// TestDetachRefusesWhatIsNoHolder: a claim that waits, that is gone or damaged.
func TestDetachRefusesWhatIsNoHolder(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	first := hold(t, a, claim("k"))
	w := wait(t, a, claim("k"))
	wantGone(t, "Detach of a claim that waits", a.Detach(soon(t), w))
	leave(t, a, w)
	name := x.keys("k/w")[0]
	was := x.value(name)
	x.put(name, `{"v":1,"id":"`+first.ID+`"}`)
	permanent(t, "Detach of a damaged claim", a.Detach(soon(t), first))
	permanent(t, "Adopt of a damaged claim", errOf(b.Adopt(soon(t), first, claim("k"))))
	must(t, errOf(x.etcd.Put(context.Background(), name, was)))
	leave(t, a, first)
	wantGone(t, "Detach of a claim that has left", a.Detach(soon(t), first))
}
