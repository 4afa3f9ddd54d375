package etcdlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
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
	begin := x.revision()
	const rounds = 20
	for range rounds {
		first := steps.Hold(t, a, steps.Claim("k"))
		second, third := steps.Wait(t, b, steps.Claim("k")), steps.Wait(t, a, steps.Reader("k"))
		steps.Refused(t, a, steps.Claim("k"))
		steps.Leave(t, a, first)
		steps.Leave(t, b, steps.Granted(t, b, second))
		steps.Leave(t, a, steps.Granted(t, a, third))
		steps.Leave(t, b, steps.Hold(t, b, steps.Permits("s", 1, 2)))
		broken := steps.Hold(t, a, steps.Claim("k"))
		steps.Must(t, b.Break(steps.Soon(t), "k", broken.Token, driver.Break{Reason: "it hangs"}))
		steps.Gone(t, "Renew of a broken claim", steps.Renew(t, a, broken))
	}
	all := x.written(begin)
	names := slices.Compact(slices.Sorted(slices.Values(all)))
	// A writer and a reader of the one, a writer and a claim on a semaphore of the other.
	if len(all) != 5*rounds || len(names) != 4 {
		t.Errorf("%d claims had %d names; want %d with 4: %v", len(all), len(names), 5*rounds, names)
	}
}

// revision is that of the last change so far.
func (x *scene) revision() int64 {
	x.t.Helper()
	now, err := x.etcd.Get(steps.Soon(x.t), x.prefix)
	steps.Must(x.t, err)
	return now.Header.Revision
}

// written lists the names of the claims that were put into line since a revision.
func (x *scene) written(since int64) (names []string) {
	x.t.Helper()
	end := x.put(x.prefix+"m", "the end")
	events := x.etcd.Watch(steps.Soon(x.t), x.prefix, clientv3.WithPrefix(), clientv3.WithRev(since+1))
	for last := int64(0); last < end; {
		for _, e := range (<-events).Events {
			if last = e.Kv.ModRevision; e.IsCreate() && isClaim(string(e.Kv.Key)) {
				names = append(names, string(e.Kv.Key))
			}
		}
	}
	x.remove(x.prefix + "m")
	return names
}

// TestNameIsTakenByALateEnter: an Enter that was given up may arrive late, under a name that
// is used again by then.
func TestNameIsTakenByALateEnter(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		b := x.backend()
		first := steps.Hold(t, b, c)
		late := x.keys("k/")[0]
		was := x.value(late)
		steps.Leave(t, b, first)
		x.put(late, was)
		next := steps.Wait(t, b, steps.Another(c))
		steps.InLine(t, "the late claim and the next", b, "k", 2)
		x.remove(late)
		steps.Leave(t, b, steps.Granted(t, b, next))
	})
}

// TestEnterArrivesAfterARefusal does as a lease without renewal does: Enter with NoWait, again when no answer
// came, and without NoWait once refused. The first arrives last: they are one claim.
func TestEnterArrivesAfterARefusal(t *testing.T) {
	each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		b := x.backend()
		late := kv.hold(t, func() error { _, err := a.Enter(steps.Soon(t), steps.NoWait(c)); return err })
		in := steps.Another(c)
		if c.Capacity == driver.RW {
			in = steps.Claim("k")
		}
		holder := steps.Hold(t, b, in)
		steps.Refused(t, a, c)
		second := steps.Wait(t, a, steps.Another(c))
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			kv.pass()
			steps.Leave(t, b, holder)
			steps.Leave(t, a, second)
			if put, err := late(); err != nil || !put.Succeeded {
				t.Errorf("the late Enter: %+v, %v", put, err)
			}
			return send()
		}
		got := steps.Hold(t, a, c)
		if names := x.keys("k/"); len(names) != 1 {
			t.Errorf("one claim is in line as %q", names)
		}
		steps.Leave(t, a, got, driver.Exit{Tombstone: true})
		steps.InLine(t, "after its Leave", b, "k", 0)
	})
}

// TestEnterArrivesAfterACollision: the repeated Enter met a stray under the name of its claim.
func TestEnterArrivesAfterACollision(t *testing.T) {
	each(t, exclusive(), func(t *testing.T, x *scene, c driver.Claim) {
		a, kv := x.delayed()
		b := x.backend()
		first := steps.Hold(t, a, steps.Another(c))
		stray := x.keys("k/")[0]
		was := x.value(stray)
		steps.Leave(t, a, first)
		holder := steps.Hold(t, b, steps.Another(c))
		kv.skip = 1 // the line is not empty: the second transaction puts the claim
		late := kv.hold(t, func() error { _, err := a.Enter(steps.Soon(t), c); return err })
		x.put(stray, was)
		steps.Gone(t, "an Enter that finds its name taken", steps.ErrOf(a.Enter(steps.Soon(t), c)))
		x.remove(stray)
		steps.OK(t, steps.ErrOf(late()))
		steps.Leave(t, b, holder)
		steps.Leave(t, a, driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
		steps.InLine(t, "after its Leave", b, "k", 0)
	})
}

// TestEnterArrivesDuringItsLeave: a Leave without a token has looked, and the claim was not
// there. Then the Enter arrives that was given up. The claim does not stay.
func TestEnterArrivesDuringItsLeave(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("through another Backend: %v", elsewhere), func(t *testing.T) {
			each(t, kinds(), func(t *testing.T, x *scene, c driver.Claim) {
				b, kv := x.delayed()
				late := kv.hold(t, func() error { _, err := b.Enter(steps.Soon(t), c); return err })
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
				if err := b.Leave(steps.Soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
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
			first := steps.Hold(t, a, steps.Claim("k"))
			name := x.keys("k/")[0]
			steps.Must(t, b.Break(steps.Soon(t), "k", first.Token, driver.Break{Reason: "it hangs"}))
			// An Enter that was given up long ago.
			put := x.put(name, `{"v":1,"id":"late","capacity":1048576,"weight":1048576,"span":1,"ttl":60}`)
			steps.Gone(t, "Leave of a claim that was broken", a.Leave(steps.Soon(t), first, e))
			now, err := x.etcd.Get(steps.Soon(t), name)
			if err != nil || len(now.Kvs) != 1 || now.Kvs[0].ModRevision != put {
				t.Errorf("what has the name of a claim that was broken is %v, %v after its Leave", now, err)
			}
			x.remove(name)
		})
	}
}

// TestLeaveArrivesLate: the delete of a Leave arrives when the claim is gone already, and the next claim of the
// process is in line under the same name, or the claim again.
func TestLeaveArrivesLate(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct{ failed, deleted bool }{
		"the claim has left meanwhile":       {},
		"the claim has left after a failure": {failed: true},
		"the claim has entered again":        {failed: true, deleted: true},
	} {
		t.Run(what, func(t *testing.T) {
			x := newScene(t)
			b, kv := x.delayed()
			first := steps.Hold(t, b, steps.Claim("k"))
			names := x.keys("k/")
			var second driver.Ticket
			others := func() {
				if test.deleted {
					x.remove(names[0])
					second = steps.Hold(t, b, first.Claim)
				} else {
					steps.Leave(t, b, first)
					second = steps.Hold(t, b, steps.Claim("k"))
				}
			}
			if !test.failed {
				kv.meanwhile = others
			}
			late := kv.hold(t, func() error { return b.Leave(steps.Soon(t), first, driver.Exit{}) })
			if test.failed {
				others()
			}
			if now := x.keys("k/w"); len(now) != 1 || now[0] != names[0] {
				t.Errorf("the next claim is %q; want the name %q again", now, names)
			}
			if answer, err := late(); err != nil || answer.Succeeded {
				t.Errorf("the late Leave: %+v, %v", answer, err)
			}
			steps.OK(t, steps.Renew(t, b, second))
			steps.Leave(t, b, second)
		})
	}
}

// TestSecondLeaveKeepsALingeringClaim: whoever leaves once more does not end it, also when the
// answer to the first Leave was lost.
func TestSecondLeaveKeepsALingeringClaim(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, kv := x.delayed()
	for _, lost := range []bool{false, true} {
		first := steps.Hold(t, b, steps.Claim("k"))
		sent := 0
		kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
			answer, err := send()
			if sent++; lost && sent == 2 { // the first one has read the line
				return nil, errors.New("the answer is lost")
			}
			return answer, err
		}
		if err := b.Leave(steps.Soon(t), first, driver.Exit{Linger: time.Minute}); (err != nil) != lost {
			t.Fatalf("the first Leave: %v", err)
		}
		steps.Gone(t, "a second Leave", b.Leave(steps.Soon(t), first, driver.Exit{}))
		steps.InLine(t, "the claim that lingers", x.backend(), "k", 1)
		x.remove(x.prefix+"k/", clientv3.WithPrefix())
	}
}
