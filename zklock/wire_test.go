package zklock

import (
	"context"
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
	leave(t, b, hold(t, b, claim("warm up "+p.addr())))
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
	for _, c := range []driver.Claim{claim("orders/42"), noWait(claim("orders/43")), reader("orders/44")} {
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
		ks[i], err = b.Enter(t.Context(), claim(fmt.Sprint("k", i)))
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
	hold(t, holder, claim("k"))
	c := admin(t, s)
	_, before, err := c.Get(prefix(t) + linesDir + "/k")
	if err != nil {
		t.Fatal(err)
	}
	p.rule(nil)
	if _, err := b.Enter(t.Context(), noWait(claim("k"))); err == nil {
		t.Fatal("a claim was granted beside the holder")
	}
	sent(t, p, "a refusal", opCreateContainer, opChildren, opGetData)
	_, now, err := c.Get(prefix(t) + linesDir + "/k")
	if err != nil || *now != *before {
		t.Errorf("the refusal changed the line from %+v to %+v, error %v", before, now, err)
	}
}

// Waiting costs no requests while nothing changes, and a grant two.
func TestWaiterAsksNothingUntilItIsWoken(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newProxy(t, s)
	b := quiet(t, p)
	holder := connect(t, long, s)
	h := hold(t, holder, claim("k"))
	k := wait(t, b, claim("k"))
	p.rule(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	for ctx.Err() == nil {
		_, _ = b.Await(ctx, k)
	}
	sent(t, p, "the first Await", opGetData, opGetData) // the watches on the one before, and on itself
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
