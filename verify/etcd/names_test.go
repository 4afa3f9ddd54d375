package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// each plays a test with each of these claims.
func each(t *testing.T, claims map[string]driver.Claim, play func(t *testing.T, x *scene, c driver.Claim)) {
	t.Parallel()
	for name, c := range claims {
		t.Run(name, func(t *testing.T) { play(t, newScene(t), c) })
	}
}

// TestNamesAreUsedAgain: a server goes over all names in a range that there ever were since
// it was compacted. A lock that is taken a hundred thousand times may not leave as many.
func TestNamesAreUsedAgain(t *testing.T) {
	x, a, b := sceneOfTwo(t)
	begin, err := x.etcd.Get(soon(t), x.prefix)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for range rounds {
		first := hold(t, a, claim("k"))
		second, third := wait(t, b, claim("k")), wait(t, a, reader("k"))
		refused(t, a, claim("k"))
		leave(t, a, first)
		leave(t, b, granted(t, b, second))
		leave(t, a, granted(t, a, third))
		leave(t, b, hold(t, b, permits("s", 1, 2)))
		broken := hold(t, a, claim("k"))
		must(t, b.Break(soon(t), "k", broken.Token, "it hangs", 0))
		wantGone(t, "Renew of a broken claim", renew(t, a, broken))
	}
	end := x.put(x.prefix+"m", "the end")
	names, puts := map[string]bool{}, 0
	events := x.etcd.Watch(soon(t), x.prefix, clientv3.WithPrefix(), clientv3.WithRev(begin.Header.Revision+1))
	for last := int64(0); last < end; {
		for _, e := range (<-events).Events {
			if last = e.Kv.ModRevision; e.IsCreate() && isClaim(string(e.Kv.Key)) {
				names[string(e.Kv.Key)], puts = true, puts+1
			}
		}
	}
	x.remove(x.prefix + "m")
	// A writer and a reader of the one, a writer and a claim on a semaphore of the other.
	if puts != 5*rounds || len(names) != 4 {
		t.Errorf("%d claims had %d names; want %d with 4: %v", puts, len(names), 5*rounds, names)
	}
}

// TestNameIsTakenByALateEnter: an Enter that was given up may arrive late, under a name that
// is used again by then.
func TestNameIsTakenByALateEnter(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		b := x.backend()
		first := hold(t, b, c)
		late := x.keys("k/")[0]
		was := x.value(late)
		leave(t, b, first)
		x.put(late, was)
		next := wait(t, b, another(c))
		if l := claims(t, b, "k"); len(l) != 2 {
			t.Errorf("the line is %+v; want the late claim and the next", l)
		}
		x.remove(late)
		leave(t, b, granted(t, b, next))
	})
}

// TestClaimDeletedByHandEntersAgain: behind those who have come since.
func TestClaimDeletedByHandEntersAgain(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := hold(t, a, c)
		x.remove(x.keys("k/")[0])
		behind := hold(t, b, another(c)) // so that the line is not empty
		again := wait(t, a, c)
		rises(t, first.Token, again.Token)
		leave(t, b, behind)
		leave(t, a, granted(t, a, again))
	})
}

// TestClaimIsFoundFromElsewhere: a Backend that has not put a claim can renew it and take
// it out of the line.
func TestClaimIsFoundFromElsewhere(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, b := x.backend(), x.backend()
		first := hold(t, a, c)
		ok(t, renew(t, b, first))
		leave(t, b, first, driver.Exit{Tombstone: true})
		wantGone(t, "Renew of what another Backend has taken out of the line", renew(t, a, first))
	})
}

// TestEnterArrivesAfterARefusal does as a lease without renewal does: Enter with NoWait, again when no answer
// came, and without NoWait once refused. The first arrives last: they are one claim.
func TestEnterArrivesAfterARefusal(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		b := x.backend()
		late := kv.hold(t, func() error { _, err := a.Enter(soon(t), noWait(c)); return err })
		in := another(c)
		if c.Capacity == driver.RW {
			in = claim("k")
		}
		holder := hold(t, b, in)
		refused(t, a, c)
		second := wait(t, a, another(c))
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			kv.pass()
			leave(t, b, holder)
			leave(t, a, second)
			if put, err := late(); err != nil || !put.Succeeded {
				t.Errorf("the late Enter: %+v, %v", put, err)
			}
			return send()
		}
		got := hold(t, a, c)
		if names := x.keys("k/"); len(names) != 1 {
			t.Errorf("one claim is in line as %q", names)
		}
		leave(t, a, got, driver.Exit{Tombstone: true})
		if l := claims(t, b, "k"); len(l) != 0 {
			t.Errorf("after its Leave the line is %+v", l)
		}
	})
}

// TestEnterArrivesAfterACollision: the repeated Enter met a stray under the name of its claim.
func TestEnterArrivesAfterACollision(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		b := x.backend()
		first := hold(t, a, another(c))
		stray := x.keys("k/")[0]
		was := x.value(stray)
		leave(t, a, first)
		holder := hold(t, b, another(c))
		kv.skip = 1 // the line is not empty: the second transaction puts the claim
		late := kv.hold(t, func() error { _, err := a.Enter(soon(t), c); return err })
		x.put(stray, was)
		wantGone(t, "an Enter that finds its name taken", errOf(a.Enter(soon(t), c)))
		x.remove(stray)
		ok(t, errOf(late()))
		leave(t, b, holder)
		leave(t, a, driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
		if l := claims(t, b, "k"); len(l) != 0 {
			t.Errorf("after its Leave the line is %+v", l)
		}
	})
}

// TestEnterArrivesDuringItsLeave: a Leave without a token has looked, and the claim was not
// there. Then the Enter arrives that was given up. The claim does not stay.
func TestEnterArrivesDuringItsLeave(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("through another Backend: %v", elsewhere), func(t *testing.T) {
			each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
				b, kv := x.delayed()
				late := kv.hold(t, func() error { _, err := b.Enter(soon(t), c); return err })
				if elsewhere {
					b, kv = x.delayed()
				}
				looks := 0
				kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
					answer, err := send()
					if looks++; looks == 1 {
						if put, err := late(); err != nil || !put.Succeeded {
							t.Errorf("the late Enter: %+v, %v", put, err)
						}
					}
					return answer, err
				}
				if err := b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
					t.Fatal(err)
				}
				if looks < 3 {
					t.Errorf("Leave took %d transactions; it has not looked again", looks)
				}
				if names := x.keys("k/"); len(names) > 1 || len(names) == 1 && !strings.Contains(names[0], "/z") {
					t.Errorf("in line is %q", names)
				}
			})
		})
	}
}

// TestLeaveDeletesOnlyItsOwnClaim: nor says that it has ended its own claim, when that is gone.
func TestLeaveDeletesOnlyItsOwnClaim(t *testing.T) {
	t.Parallel()
	for _, e := range []driver.Exit{{}, {Mark: "m"}} {
		t.Run(fmt.Sprintf("mark %q", e.Mark), func(t *testing.T) {
			x := newScene(t)
			a, b := x.backend(), x.backend()
			first := hold(t, a, claim("k"))
			name := x.keys("k/")[0]
			must(t, b.Break(soon(t), "k", first.Token, "it hangs", 0))
			// An Enter that was given up long ago.
			put := x.put(name, `{"v":1,"id":"late","capacity":1048576,"weight":1048576,"span":1,"ttl":60}`)
			wantGone(t, "Leave of a claim that was broken", a.Leave(soon(t), first, e))
			now, err := x.etcd.Get(soon(t), name)
			if err != nil || len(now.Kvs) != 1 || now.Kvs[0].ModRevision != put {
				t.Errorf("what has the name of a claim that was broken is %v, %v after its Leave", now, err)
			}
			x.remove(name)
		})
	}
}

// TestLeaveArrivesLate: the delete of a Leave arrives when the claim has left already, and the next
// claim of the process is in line under the same name.
func TestLeaveArrivesLate(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a failure: %v", failed), func(t *testing.T) {
			x := newScene(t)
			b, kv := x.delayed()
			first := hold(t, b, claim("k"))
			names := x.keys("k/")
			var second driver.Ticket
			others := func() {
				leave(t, b, first)
				second = hold(t, b, claim("k"))
			}
			if !failed {
				kv.meanwhile = others
			}
			late := kv.hold(t, func() error { return b.Leave(soon(t), first, driver.Exit{}) })
			if failed {
				others()
			}
			if now := x.keys("k/w"); len(now) != 1 || now[0] != names[0] {
				t.Errorf("the next claim is %q; want the name %q again", now, names)
			}
			if answer, err := late(); err != nil || answer.Succeeded {
				t.Errorf("the late Leave: %+v, %v", answer, err)
			}
			ok(t, renew(t, b, second))
			leave(t, b, second)
		})
	}
}

// TestEnterAfterALeaveWithoutAnAnswer: the key was deleted by hand, and the claim enters
// again, under the same name. The Leave that arrives then does not end the new claim.
func TestEnterAfterALeaveWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, kv := x.delayed()
	first := hold(t, b, claim("k"))
	late := kv.hold(t, func() error { return b.Leave(soon(t), first, driver.Exit{}) })
	name := x.keys("k/")[0]
	x.remove(name)
	again := hold(t, b, first.Claim)
	if now := x.keys("k/"); len(now) != 1 || now[0] != name {
		t.Errorf("the claim enters again as %q; it was %q", now, name)
	}
	if answer, err := late(); err != nil || answer.Succeeded {
		t.Errorf("the late Leave: %+v, %v", answer, err)
	}
	ok(t, renew(t, b, again))
	leave(t, b, again)
}

// TestSecondLeaveKeepsALingeringClaim: whoever leaves once more does not end it, also when the
// answer to the first Leave was lost.
func TestSecondLeaveKeepsALingeringClaim(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, kv := x.delayed()
	for _, lost := range []bool{false, true} {
		first := hold(t, b, claim("k"))
		sent := 0
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			answer, err := send()
			if sent++; lost && sent == 2 { // the first one has read the line
				return nil, errors.New("the answer is lost")
			}
			return answer, err
		}
		if err := b.Leave(soon(t), first, driver.Exit{Linger: time.Minute}); (err != nil) != lost {
			t.Fatalf("the first Leave: %v", err)
		}
		wantGone(t, "a second Leave", b.Leave(soon(t), first, driver.Exit{}))
		if l := claims(t, x.backend(), "k"); len(l) != 1 {
			t.Errorf("after it the line is %+v; want what lingers", l)
		}
		x.remove(x.prefix+"k/", clientv3.WithPrefix())
	}
}

// TestLingeringClaimKeepsItsName: the next claim does not take the name of what stays.
func TestLingeringClaimKeepsItsName(t *testing.T) {
	_, b := sceneOfOne(t)
	must(t, b.Leave(soon(t), hold(t, b, ttl(claim("k"), lease)), driver.Exit{Linger: lease}))
	began := time.Now()
	next := granted(t, b, wait(t, b, ttl(claim("k"), 20*time.Second)))
	if time.Since(began) < lease/2 {
		t.Errorf("a claim did not wait for one that lingers for %v", lease)
	}
	leave(t, b, next)
}
