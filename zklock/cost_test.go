package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// long is a session that does not end during a test.
var long = &Options{SessionTimeout: 9 * time.Minute}

// quiet opens a Backend behind a proxy and waits until all that its session begins
// with is over.
func quiet(t testing.TB, p *proxy) *Backend {
	t.Helper()
	b := through(t, p, long)
	leave(t, b, hold(t, b, exclusive("warm up "+p.addr())))
	last := -1
	eventually(t, "nothing more is asked", func() bool {
		n := len(p.requests())
		<-after(30 * time.Millisecond)
		still := n == last
		last = n
		return still
	})
	p.rule(nil)
	return b
}

func sent(t *testing.T, p *proxy, what string, want ...int32) {
	t.Helper()
	if got := p.requests(); !slices.Equal(got, want) {
		t.Errorf("%s cost the requests %v; want %v", what, got, want)
	}
	p.rule(nil)
}

func TestFreeLockCostsTwoRequestsAndItsReleaseOne(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b := quiet(t, p)
	for _, c := range []driver.Claim{exclusive("orders/42"), noWait(exclusive("orders/43")), reader("orders/44")} {
		k := hold(t, b, c)
		sent(t, p, "Enter of a free lock", opCreateContainer, opMulti)
		if err := renew(b, k); err != nil {
			t.Fatal(err)
		}
		sent(t, p, "Renew", opMulti)
		if c.Weight == 1 && k.Mark != "" {
			t.Error("there is no mark")
		}
		leave(t, b, k)
		sent(t, p, "Leave of a lock that nobody waits for", opMulti)
	}
	empty(t, s)
}

func TestManyLocksAreRenewedByOneRequest(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b := quiet(t, p)
	ks := make([]driver.Ticket, 300)
	if err := each(len(ks), func(i int) (err error) {
		ks[i], err = b.Enter(t.Context(), exclusive(fmt.Sprint("k", i)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.rule(nil)
	for i, err := range b.Renew(t.Context(), ks) {
		if err != nil {
			t.Fatalf("Renew of claim %d: %v", i, err)
		}
	}
	sent(t, p, "Renew of 300 locks", opMulti)
	if err := each(len(ks), func(i int) error { return b.Leave(t.Context(), ks[i], driver.Exit{}) }); err != nil {
		t.Fatal(err)
	}
	empty(t, s)
}

func TestRefusedClaimWritesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b := quiet(t, p)
	holder := connect(t, long, s)
	hold(t, holder, exclusive("k"))
	c := admin(t, s)
	_, before, err := c.Get(prefix(t) + linesDir + "/k")
	if err != nil {
		t.Fatal(err)
	}
	p.rule(nil)
	if _, err := b.Enter(t.Context(), noWait(exclusive("k"))); err == nil {
		t.Fatal("a claim was granted beside the holder")
	}
	sent(t, p, "a refusal", opCreateContainer, opChildren, opGetData)
	_, now, err := c.Get(prefix(t) + linesDir + "/k")
	if err != nil || *now != *before {
		t.Errorf("the refusal changed the line from %+v to %+v, error %v", before, now, err)
	}
}

// Waiting costs no requests while nothing changes, and a grant one.
func TestWaiterAsksNothingUntilItIsWoken(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b := quiet(t, p)
	holder := connect(t, long, s)
	h := hold(t, holder, exclusive("k"))
	k := wait(t, b, exclusive("k"))
	// Who is first is the one that it waits for: the reading sets the watch.
	sent(t, p, "Enter of a lock that another holds", opCreateContainer, opMulti, opChildren, opGetData)
	if k.Head == nil || k.Head.Token != h.Token {
		t.Errorf("the holder is shown as %+v; want token %d", k.Head, h.Token)
	}
	waits(b, k, -time.Hour)
	_, _ = b.Await(within(t, patient/5), k)
	sent(t, p, "the first Await")
	waits(b, k, time.Hour)
	if _, err := b.Await(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	sent(t, p, "Await of a claim that has waited for a while", opGetData) // the watch on itself
	if _, err := b.Await(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	sent(t, p, "a second of Await")
	leave(t, holder, h)
	granted(t, b, k)
	sent(t, p, "a grant", opChildren)
	leave(t, b, k)
	empty(t, s)
}

// waits sets for how long k has waited.
func waits(b *Backend, k driver.Ticket, d time.Duration) {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	b.claims.byRef[k.Ref()].wait.joined = time.Now().Add(-d)
}

// A line that goes on fast costs its claims five requests each: to join, to read who is
// ahead, to watch the next of them, to read the line when that has left, and to leave.
func TestGrantInALongLineCostsFiveRequests(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b, other := quiet(t, p), connect(t, long, s)
	var ahead []driver.Ticket
	for range fewAhead + 1 {
		ahead = append(ahead, enter(t, other, exclusive("k")))
	}
	leave(t, b, wait(t, b, exclusive("k"))) // its container is known from now on
	p.rule(nil)
	k := wait(t, b, exclusive("k"))
	sent(t, p, "Enter behind many", opMulti, opChildren)
	waits(b, k, -time.Hour) // not for long, however slow the machine is
	_, _ = b.Await(within(t, patient/5), k)
	sent(t, p, "the first Await", opGetData)
	next := make(chan driver.Ticket, 1)
	go func() {
		now, err := k, error(nil)
		for err == nil && !now.Granted {
			now, err = b.Await(context.WithoutCancel(t.Context()), now)
		}
		next <- now
	}()
	for _, a := range ahead {
		leave(t, other, granted(t, other, a))
	}
	leave(t, b, <-next)
	sent(t, p, "the grant and the release", opChildren, opMulti)
	empty(t, s)
}

// Who waits for long in a long line asks once who holds the lock.
func TestWaiterInALongLineLearnsWhoIsFirst(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b, other := quiet(t, p), connect(t, long, s)
	ahead := []driver.Ticket{hold(t, other, exclusive("k"))}
	for range fewAhead {
		ahead = append(ahead, wait(t, other, exclusive("k")))
	}
	k := wait(t, b, exclusive("k"))
	if k.Head != nil {
		t.Errorf("%+v is told as the first of a long line", k.Head)
	}
	p.rule(nil)
	for range 2 {
		var err error
		if k, err = b.Await(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	sent(t, p, "two seconds of Await", opGetData, opGetData, opGetData) // two watches, and who is first
	if k.Head == nil || k.Head.Token != ahead[0].Token || k.Head.Ahead != fewAhead+1 {
		t.Errorf("the first is shown as %+v; want token %d, %d ahead", k.Head, ahead[0].Token, fewAhead+1)
	}
	for _, a := range ahead {
		leave(t, other, a)
	}
	leave(t, b, k)
	empty(t, s)
}

// An operator ends a claim that does not listen for that yet, and then the one before it
// leaves: that is no grant. The one behind has the lock by then.
func TestBrokenWaiterIsNotGranted(t *testing.T) {
	t.Parallel()
	s := server(t)
	b, other := connect(t, long, s), connect(t, long, s)
	first := hold(t, other, exclusive("k"))
	second, third := wait(t, b, exclusive("k")), wait(t, other, exclusive("k"))
	done := make(chan error, 1)
	go func() {
		now, err := second, error(nil)
		for err == nil && !now.Granted {
			now, err = b.Await(context.WithoutCancel(t.Context()), second)
		}
		done <- err
	}()
	waits(b, second, -time.Hour) // not for long, however slow the machine is
	eventually(t, "it watches the one before it", func() bool {
		b.claims.mu.Lock()
		defer b.claims.mu.Unlock()
		return len(b.claims.byRef[second.Ref()].wait.watches) > 0
	})
	if err := other.Break(t.Context(), "k", second.Token, "go home"); err != nil {
		t.Fatal(err)
	}
	leave(t, other, first)
	var g driver.ErrGone
	if err := <-done; !errors.As(err, &g) || g.Reason != "go home" {
		t.Errorf("Await of a claim that was broken answered %v; want the reason", err)
	}
	leave(t, other, granted(t, other, third))
	empty(t, s)
}
