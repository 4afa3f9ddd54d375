package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// claims lists the keys of the claims on key.
func (x *scene) claims(key string) (names []string) {
	x.t.Helper()
	for _, name := range x.keys() {
		if strings.HasPrefix(name, x.prefix+key+"/") {
			names = append(names, name)
		}
	}
	return names
}

// TestNamesAreUsedAgain: a server goes over all names in a range that there ever were since
// it was compacted. A lock that is taken a hundred thousand times may not leave as many.
func TestNamesAreUsedAgain(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	a, b := x.backend(), x.backend()
	begin, err := x.etcd.Get(soon(t), x.prefix)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for range rounds {
		first := hold(t, a, claim("k"))
		second, third := wait(t, b, claim("k")), wait(t, a, reader("k"))
		if _, err := a.Enter(soon(t), noWait(claim("k"))); err == nil {
			t.Fatal("two hold one lock")
		}
		leave(t, a, first)
		leave(t, b, granted(t, b, second))
		leave(t, a, granted(t, a, third))
		leave(t, b, hold(t, b, permits("s", 1, 2)))
		broken := hold(t, a, claim("k"))
		if err := b.Break(soon(t), "k", broken.Token, "it hangs"); err != nil {
			t.Fatal(err)
		}
		if err := renew(t, a, broken); !driver.Gone(err) {
			t.Fatalf("Renew of a broken claim: %v", err)
		}
	}
	end, err := x.etcd.Put(soon(t), x.prefix+"the end", "")
	if err != nil {
		t.Fatal(err)
	}
	names, puts := map[string]bool{}, 0
	events := x.etcd.Watch(soon(t), x.prefix, clientv3.WithPrefix(), clientv3.WithRev(begin.Header.Revision+1))
	for last := int64(0); last < end.Header.Revision; {
		for _, e := range (<-events).Events {
			name := strings.TrimPrefix(string(e.Kv.Key), x.prefix)
			if last = e.Kv.ModRevision; e.IsCreate() && (strings.HasPrefix(name, "k/") || strings.HasPrefix(name, "s/")) && !strings.Contains(name, "/z") {
				names[name], puts = true, puts+1
			}
		}
	}
	// A writer and a reader of the one, a writer and a claim on a semaphore of the other.
	if puts != 5*rounds || len(names) != 4 {
		t.Errorf("%d claims had %d names; want %d with 4: %v", puts, len(names), 5*rounds, names)
	}
	if _, err := x.etcd.Delete(soon(t), x.prefix+"the end"); err != nil {
		t.Fatal(err)
	}
}

// TestNameIsTakenByALateEnter: an Enter that was given up may arrive late, under a name that
// is used again by then.
func TestNameIsTakenByALateEnter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "semaphore": permits("k", 1, 1)} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t)
			b := x.backend()
			first := hold(t, b, c)
			late := x.claims("k")
			was, err := x.etcd.Get(soon(t), late[0])
			if err != nil || len(late) != 1 {
				t.Fatal(late, err)
			}
			leave(t, b, first)
			if _, err := x.etcd.Put(soon(t), late[0], string(was.Kvs[0].Value)); err != nil {
				t.Fatal(err)
			}
			c.ID += "2"
			next := wait(t, b, c)
			if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 2 {
				t.Errorf("the line is %+v, %v; want the late claim and the next", l, err)
			}
			if _, err := x.etcd.Delete(soon(t), late[0]); err != nil {
				t.Fatal(err)
			}
			leave(t, b, granted(t, b, next))
		})
	}
}

// TestClaimDeletedByHandEntersAgain: behind those who have come since.
func TestClaimDeletedByHandEntersAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "semaphore": permits("k", 1, 1)} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t)
			a, b := x.backend(), x.backend()
			first := hold(t, a, c)
			if _, err := x.etcd.Delete(soon(t), x.claims("k")[0]); err != nil {
				t.Fatal(err)
			}
			other := c
			other.ID += "2"
			behind := hold(t, b, other) // so that the line is not empty
			again := wait(t, a, c)
			if again.Token <= first.Token {
				t.Errorf("it has token %d; want one above %d", again.Token, first.Token)
			}
			leave(t, b, behind)
			leave(t, a, granted(t, a, again))
		})
	}
}

// TestClaimIsFoundFromElsewhere: a Backend that has not put a claim can renew it and take
// it out of the line.
func TestClaimIsFoundFromElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "reader": reader("k"), "semaphore": permits("k", 1, 1)} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t)
			a, b := x.backend(), x.backend()
			first := hold(t, a, c)
			if err := renew(t, b, first); err != nil {
				t.Errorf("Renew: %v", err)
			}
			first.Token = 0
			if err := b.Leave(soon(t), first, driver.Exit{}); err != nil {
				t.Errorf("Leave without a token: %v", err)
			}
			if err := renew(t, a, first); !driver.Gone(err) {
				t.Errorf("Renew of what another Backend has taken out of the line: %v", err)
			}
		})
	}
}

// sending sends a transaction.
type sending = func() (*clientv3.TxnResponse, error)

// delaying is a KV whose transactions a test holds up.
type delaying struct {
	clientv3.KV
	commit func(sending) (*clientv3.TxnResponse, error)
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
	etcd := dial(x.t, x.server.Addr())
	d := &delaying{KV: etcd.KV}
	d.pass()
	etcd.KV = d
	return backend(x.t, etcd, x.prefix), d
}

func (d *delaying) pass() {
	d.commit = func(send sending) (*clientv3.TxnResponse, error) { return send() }
}

// hold holds up the Enter of c, and returns what sends it.
func (d *delaying) hold(t *testing.T, b driver.Backend, c driver.Claim) (late sending) {
	t.Helper()
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		late = send
		d.pass()
		return nil, errors.New("it is under way")
	}
	if _, err := b.Enter(soon(t), c); err == nil {
		t.Fatal("the Enter was not held up")
	}
	return late
}

// TestEnterArrivesAfterARefusal is what a FixedLease does: Enter with NoWait, again when no
// answer came, and without NoWait once it was refused. Others of the process come and go
// meanwhile. The first Enter arrives before the last: they are one claim all the same.
func TestEnterArrivesAfterARefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "reader": reader("k"), "semaphore": permits("k", 1, 1)} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t)
			a, kv := x.delayed()
			b := x.backend()
			other := c
			other.ID += "2"
			late := kv.hold(t, a, noWait(c))
			in := claim("k")
			if c.Capacity < driver.RW {
				in = permits("k", 1, 1)
			}
			holder := hold(t, b, in)
			if _, err := a.Enter(soon(t), noWait(c)); err == nil {
				t.Fatal("two hold one lock")
			}
			second := wait(t, a, other)
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
			if names := x.claims("k"); len(names) != 1 {
				t.Errorf("one claim is in line as %q", names)
			}
			got.Token = 0
			leave(t, a, got)
			if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 0 {
				t.Errorf("after its Leave the line is %+v, %v", l, err)
			}
		})
	}
}

// TestEnterArrivesAfterACollision: the repeated Enter met a stray under the name of its claim.
func TestEnterArrivesAfterACollision(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "semaphore": permits("k", 1, 1)} {
		t.Run(name, func(t *testing.T) {
			x := newScene(t)
			a, kv := x.delayed()
			b := x.backend()
			first := c
			first.ID += "1"
			k := hold(t, a, first)
			stray := x.claims("k")[0]
			was, err := x.etcd.Get(soon(t), stray)
			if err != nil {
				t.Fatal(err)
			}
			leave(t, a, k)
			first.ID += "2"
			holder := hold(t, b, first)
			try := c
			try.ID += "3"
			if _, err := a.Enter(soon(t), noWait(try)); err == nil { // a takes the line for crowded now
				t.Fatal("two hold one lock")
			}
			late := kv.hold(t, a, c)
			if _, err := x.etcd.Put(soon(t), stray, string(was.Kvs[0].Value)); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Enter(soon(t), c); !driver.Gone(err) {
				t.Errorf("an Enter that finds its name taken: %v; want ErrGone", err)
			}
			if _, err := x.etcd.Delete(soon(t), stray); err != nil {
				t.Fatal(err)
			}
			if _, err := late(); err != nil {
				t.Error(err)
			}
			leave(t, b, holder)
			if err := a.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{}); err != nil {
				t.Error(err)
			}
			if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 0 {
				t.Errorf("after its Leave the line is %+v, %v", l, err)
			}
		})
	}
}

// TestEnterArrivesDuringItsLeave: a Leave without a token has looked, and the claim was not
// there. Then the Enter arrives that was given up. The claim does not stay.
func TestEnterArrivesDuringItsLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]driver.Claim{"writer": claim("k"), "reader": reader("k"), "semaphore": permits("k", 1, 1)} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, through another Backend: %v", name, elsewhere), func(t *testing.T) {
				x := newScene(t)
				b, kv := x.delayed()
				late := kv.hold(t, b, c)
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
				if err := b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{}); err != nil && !driver.Gone(err) {
					t.Fatal(err)
				}
				if looks < 3 {
					t.Errorf("Leave took %d transactions; it has not looked again", looks)
				}
				if names := x.claims("k"); len(names) > 1 || len(names) == 1 && !strings.Contains(names[0], "/z") {
					t.Errorf("in line is %q", names)
				}
			})
		}
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
			name := x.claims("k")[0]
			if err := b.Break(soon(t), "k", first.Token, "it hangs"); err != nil {
				t.Fatal(err)
			}
			// An Enter that was given up long ago.
			was, err := x.etcd.Put(soon(t), name, `{"v":1,"id":"late","capacity":1048576,"weight":1048576,"span":1,"ttl":60}`)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Leave(soon(t), first, e); !driver.Gone(err) {
				t.Errorf("Leave of a claim that was broken: %v; want ErrGone", err)
			}
			now, err := x.etcd.Get(soon(t), name)
			if err != nil {
				t.Fatal(err)
			}
			if len(now.Kvs) != 1 || now.Kvs[0].ModRevision != was.Header.Revision {
				t.Errorf("what has the name of a claim that was broken is %v after its Leave", now)
			}
			if _, err := x.etcd.Delete(soon(t), name); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLeaveArrivesLate: the delete of a Leave is under way when another Leave of the claim
// is answered, or has failed before. The next claim of the process is in line when it
// arrives, under the same name.
func TestLeaveArrivesLate(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a failure: %v", failed), func(t *testing.T) {
			x := newScene(t)
			b, kv := x.delayed()
			next := claim("k")
			next.ID += "2"
			first := hold(t, b, claim("k"))
			var second driver.Ticket
			others := func() {
				leave(t, b, first)
				second = hold(t, b, next)
			}
			var late sending
			kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
				late = send
				kv.pass()
				if !failed {
					others()
				}
				return nil, errors.New("it is under way")
			}
			if err := b.Leave(soon(t), first, driver.Exit{}); err == nil {
				t.Fatal("the Leave was not held up")
			}
			if failed {
				others()
			}
			if answer, err := late(); err != nil || answer.Succeeded {
				t.Errorf("the late Leave: %+v, %v", answer, err)
			}
			if err := renew(t, b, second); err != nil {
				t.Errorf("the claim after it: %v", err)
			}
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
	var late sending
	kv.commit = func(send sending) (*clientv3.TxnResponse, error) {
		late = send
		kv.pass()
		return nil, errors.New("it is under way")
	}
	if err := b.Leave(soon(t), first, driver.Exit{}); err == nil {
		t.Fatal("the Leave was not held up")
	}
	names := x.claims("k")
	if _, err := x.etcd.Delete(soon(t), names[0]); err != nil {
		t.Fatal(err)
	}
	again := hold(t, b, first.Claim)
	if now := x.claims("k"); len(now) != 1 || now[0] != names[0] {
		t.Errorf("the claim enters again as %q; it was %q", now, names)
	}
	if answer, err := late(); err != nil || answer.Succeeded {
		t.Errorf("the late Leave: %+v, %v", answer, err)
	}
	if err := renew(t, b, again); err != nil {
		t.Errorf("the claim that entered again: %v", err)
	}
	leave(t, b, again)
}

// TestSecondLeaveKeepsALingeringClaim: whoever leaves once more does not end it.
func TestSecondLeaveKeepsALingeringClaim(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b := x.backend()
	first := hold(t, b, claim("k"))
	if err := b.Leave(soon(t), first, driver.Exit{Linger: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := b.Leave(soon(t), first, driver.Exit{}); !driver.Gone(err) {
		t.Errorf("a second Leave: %v; want ErrGone", err)
	}
	if l, err := b.Line(soon(t), "k"); err != nil || len(l.Claims) != 1 {
		t.Errorf("after it the line is %+v, %v; want what lingers", l, err)
	}
	if _, err := x.etcd.Delete(soon(t), x.prefix+"k/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// TestLingeringClaimKeepsItsName does not take the name of what stays.
func TestLingeringClaimKeepsItsName(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b := x.backend()
	if err := b.Leave(soon(t), hold(t, b, ttl(claim("k"), lease)), driver.Exit{Linger: lease}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	next := wait(t, b, ttl(claim("k"), 20*time.Second))
	if next = granted(t, b, next); time.Since(began) < lease/2 {
		t.Errorf("a claim did not wait for one that lingers for %v", lease)
	}
	leave(t, b, next)
}
