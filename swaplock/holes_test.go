package swaplock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// failing has before run at the next Swap, which is sent only if before returns nil.
type failing struct {
	*toy
	before func() error
}

func (s *failing) Swap(ctx context.Context, key string, c *swaplock.Change) (string, error) {
	if before := s.before; before != nil {
		s.before = nil
		if err := before(); err != nil {
			return "", err
		}
	}
	return s.toy.Swap(ctx, key, c)
}

// The steps that are the same for every store.
var (
	entered = steps.Enter
	awaited = steps.Granted
	renewed = steps.Renew
	left    = steps.Leave
)

func cutNow() error { return errCut }

func exclusive(id string, ttl time.Duration) driver.Claim {
	return driver.Claim{
		Key: "k", ID: id, Owner: "o", Capacity: driver.RW, Weight: driver.RW, TTL: ttl, Span: 1,
	}
}

// A process asks for the first renewal of a waiter, and its connection is cut before the swap.
// A record that was made before the swap would be renewed from now on, though the line has the
// claim end by its document: two would hold the lock.
func TestRenewalWithoutItsSwapMakesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder := entered(t, b, exclusive("holder", time.Hour))
		waiter := entered(t, a, exclusive("waiter", time.Minute))
		s.before = cutNow
		steps.Is(t, "the first renewal", renewed(t, a, waiter), errCut)
		steps.Same(t, "records of no document", s.records(), 0)
		time.Sleep(2 * time.Minute)
		left(t, b, holder)
		steps.Hold(t, b, exclusive("next", time.Hour)) // a claim whose lease has ended does not bar the way
		steps.Gone(t, "Renew of a claim whose lease has ended", renewed(t, a, waiter))
	})
}

// The swap of a first renewal is under way while the lease ends that it relies on.
func TestSwapThatLandsAfterTheLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		b := opened(t, s)
		entered(t, b, exclusive("granted", 20*time.Second))
		waiter := entered(t, b, exclusive("waiter", 20*time.Second))
		s.before = func() error {
			time.Sleep(40 * time.Second)
			return nil
		}
		steps.Gone(t, "the first renewal", renewed(t, b, waiter))
		steps.InLine(t, "afterwards", b, "k", 0)
	})
}

// The record of a claim that is broken must not go before the claim does.
func TestBreakWithoutItsSwapBreaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		entered(t, b, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		steps.Must(t, renewed(t, b, waiter))
		steps.Same(t, "records", s.records(), 1)
		s.before = cutNow
		steps.Is(t, "Break", a.Break(t.Context(), "k", waiter.Token, driver.Break{Reason: "enough"}), errCut)
		steps.Well(t, "Renew of a claim that was not broken", renewed(t, b, waiter))
	})
}

// A swap that takes a waiter into the document is under way while the waiter renews its lease. What the swap has read
// of that lease is old.
func TestRenewalWhileItsArrivalIsTakenIntoTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder := entered(t, a, exclusive("holder", time.Hour))
		first := entered(t, b, exclusive("first", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Minute))
		time.Sleep(50 * time.Second)
		renewals := 0
		s.before = func() error { // of the line in which the holder was alone
			s.before = func() error { renewals++; return renewed(t, b, waiter) }
			return nil
		}
		left(t, a, holder)
		time.Sleep(50 * time.Second)
		left(t, b, awaited(t, b, first))
		if got, err := b.Await(t.Context(), waiter); err != nil || !got.Granted || renewals != 1 {
			t.Errorf("after %d renewals Await returned %+v, error %v", renewals, got, err)
		}
	})
}

// A waiter whose lease was renewed gives up.
func TestWaiterThatGivesUpLeavesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		b := opened(t, s)
		for i := range 30 { // more than a document takes
			entered(t, b, exclusive(fmt.Sprint("before", i), time.Hour))
		}
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		steps.Must(t, renewed(t, b, waiter))
		steps.Same(t, "records", s.records(), 1)
		left(t, b, waiter)
		steps.Same(t, "records are left", s.records(), 0)
	})
}

// A call renews the lease of a waiter twice, the second time for longer.
func TestLongestOfTwoFirstRenewalsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, newToy())
		entered(t, b, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Minute))
		longer := waiter
		longer.TTL = 3 * time.Minute
		for _, err := range b.Renew(t.Context(), []driver.Ticket{waiter, longer}) {
			steps.Must(t, err)
		}
		time.Sleep(2 * time.Minute)
		steps.InLine(t, "two minutes later", b, "k", 2)
	})
}

// A client has left a message by which it joins, and has died. Long after, another client swaps.
func TestMessageOfAClientThatHasGivenUpIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toy := newToy()
		s := notes{toy, toy, 0}
		for _, id := range []string{"late", "soon"} {
			m := `{"enter":{"id":"` + id + `","owner":"a client","ttl":"1m0s"}}`
			if added, err := s.Message(t.Context(), "k", []byte(m)); !added || err != nil {
				t.Fatal(err)
			}
			if id == "late" {
				time.Sleep(2 * time.Minute)
			}
		}
		b := opened(t, s)
		if last := entered(t, b, exclusive("last", time.Hour)); last.Granted || last.Ahead != 1 {
			t.Errorf("%d claims are before one that joins; want that of the younger message", last.Ahead)
		}
	})
}

// A client asks for a place by a message, and a long line arrives behind that. The next swap sees the message, and not
// the end of the line, where the place is.
func TestMessageBeforeALongLineKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		b := opened(t, s)
		line := []driver.Ticket{entered(t, b, exclusive("holder", time.Hour))}
		join := func(n int) {
			for range n {
				line = append(line, entered(t, b, exclusive(fmt.Sprint("waiter", len(line)), time.Hour)))
			}
		}
		join(3)
		const ask = `{"enter":{"id":"asks","owner":"far","ttl":"1h0m0s"}}`
		if added, err := s.Message(t.Context(), "k", []byte(ask)); !added || err != nil {
			t.Fatal(added, err)
		}
		join(40)
		for _, w := range line {
			left(t, b, awaited(t, b, w))
		}
		l, err := b.Line(t.Context(), "k")
		if err != nil || len(l.Claims) != 1 || l.Claims[0].Owner != "far" {
			t.Errorf("the line is %+v, error %v; want the claim that has asked", l, err)
		}
	})
}

// A process leaves a line empty and enters it again seconds later, without a read. Its lease is whole.
func TestLeaseOfALineLeftEmptyIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, onlySwaps{newToy()})
		left(t, b, entered(t, b, exclusive("first", time.Minute)))
		time.Sleep(9 * time.Second)
		entered(t, b, exclusive("second", time.Minute))
		if l, err := b.Line(t.Context(), "k"); err != nil || len(l.Claims) != 1 || l.Claims[0].Left != time.Minute {
			t.Errorf("the line is %+v, error %v", l, err)
		}
	})
}

// A holder under notice leaves by a message, since its swap was lost. It has left, and was not broken. It cannot leave
// twice.
func TestLeaveUnderNoticeByAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		holder, other := entered(t, a, reader("holder")), entered(t, b, reader("other"))
		noticed(t, b, holder)
		s.before = func() error { // of the line in which the holder was alone
			s.before = func() error { return renewed(t, b, other) }
			return nil
		}
		left(t, a, holder)
		err := a.Leave(t.Context(), holder, driver.Exit{}) // by a message at once, as the last swap came too late
		steps.Gone(t, "the second Leave", err)
	})
}

// The machine has slept since the line was left empty, and the store has not.
func TestLeaseAfterTheMachineHasSleptIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(newToy(), 0)
		b := opened(t, onlySwaps{s})
		left(t, b, entered(t, b, exclusive("first", time.Minute)))
		b.Sleep(time.Hour)
		s.requests.Store(0)
		entered(t, b, exclusive("second", time.Minute))
		steps.Same(t, "requests to enter: a Read and a Swap", s.requests.Load(), 2)
	})
}

// A claim is granted as it enters, and its lease ends at once. Who waits for it is not told of that grant again.
func TestAwaitOfAnExpiredClaimLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, onlySwaps{newToy()})
		ticket := entered(t, b, exclusive("holder", 100*time.Millisecond))
		time.Sleep(200 * time.Millisecond)
		steps.Gone(t, "Await", steps.ErrOf(b.Await(t.Context(), ticket)))
	})
}

// telling reads the line with its news, which arrive late.
type telling struct {
	toy            *toy
	swaplock.Store // of toy
	late           time.Duration
}

func (s telling) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News),
) error {
	return s.toy.Watch(ctx, waiting, func(key string, news []swaplock.News) {
		if len(news) == 0 {
			hear(key, nil)
			return
		}
		k, now := s.toy.key(key) // say holds mu
		st := swaplock.State{
			Version: k.version, Now: now, Content: k.content, Arrivals: slices.Clone(k.arrivals),
		}
		news = slices.Clone(news)
		for i := range news {
			news[i].State = &st
		}
		time.AfterFunc(s.late, func() { hear(key, news) })
	})
}

// A process hears late of its grant, with the line as it was then. It leaves, and enters again without a read.
func TestLeaseOfALineHeardOfLateIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := telling{newToy(), nil, 300 * time.Millisecond}
		s.Store = s.toy
		a, b := opened(t, onlySwaps{s.toy}), opened(t, s)
		holder := entered(t, a, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Hour))
		time.AfterFunc(100*time.Millisecond, func() { _ = a.Leave(t.Context(), holder, driver.Exit{}) })
		left(t, b, awaited(t, b, waiter))
		entered(t, b, exclusive("next", time.Minute))
		if l, err := b.Line(t.Context(), "k"); err != nil || len(l.Claims) != 1 || l.Claims[0].Left < time.Minute {
			t.Errorf("the line is %+v, error %v", l, err)
		}
	})
}
