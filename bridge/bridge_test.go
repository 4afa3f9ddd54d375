package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/memlock"
)

// pair is two stores and programs of the three phases.
type pair struct {
	t        *testing.T
	old, new *memlock.Store
	wire     *faulty.Backend // of b to the new store
	b        *bridge.Backend
}

// inBubble runs f on a pair of stores in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{t: t, old: memlock.New(), new: memlock.New()}
		p.wire = faulty.New(p.new, 1, faulty.Options{})
		p.b = bridge.New(p.old, p.wire)
		f(t, p)
		p.b.Close()
	})
}

func (p *pair) must(err error) {
	p.t.Helper()
	steps.Must(p.t, err)
}

// enter enters b with c, and must be granted or not.
func (p *pair) enter(b driver.Backend, c driver.Claim, granted bool) driver.Ticket {
	p.t.Helper()
	t, err := b.Enter(p.t.Context(), c)
	p.must(err)
	if t.Granted != granted {
		p.t.Fatalf("granted %v; want %v", t.Granted, granted)
	}
	return t
}

// await waits in b for the grant of t.
func (p *pair) await(b driver.Backend, t driver.Ticket) driver.Ticket {
	p.t.Helper()
	for range 10 {
		got, err := b.Await(p.t.Context(), t)
		p.must(err)
		if got.Granted {
			return got
		}
	}
	p.t.Fatal("it is not granted")
	return t
}

func (p *pair) leave(b driver.Backend, t driver.Ticket) {
	p.t.Helper()
	p.must(b.Leave(p.t.Context(), t, driver.Exit{}))
}

// free must find nothing in a store.
func (p *pair) free(what string, s *memlock.Store) {
	p.t.Helper()
	if l, _ := s.Line(p.t.Context(), "k"); len(l.Claims) > 0 {
		p.t.Errorf("%s has %+v", what, l.Claims)
	}
}

// Readers that the old store grants at once reach the new store in any order.
func TestTokensRiseBehindReadersThatOvertakeEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		first := p.enter(p.old, steps.Claim("k"), true)
		var readers []driver.Ticket
		for range 20 {
			readers = append(readers, p.enter(p.b, steps.Reader("k"), false))
		}
		bridged := p.enter(p.b, steps.Claim("k"), false)
		last := p.enter(p.old, steps.Claim("k"), false)
		p.leave(p.old, first)
		for i := len(readers) - 1; i >= 0; i-- {
			readers[i] = p.await(p.b, readers[i])
		}
		for _, r := range readers {
			p.leave(p.b, r)
		}
		bridged = p.await(p.b, bridged)
		p.leave(p.b, bridged)
		steps.Rises(t, bridged.Token, p.await(p.old, last).Token)
	})
}

// The clock of the new store is ahead. A program of both locks the key on the way back: the old store must then
// number above the new one.
func TestTokensRiseOnTheWayBackFromAClockThatIsAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		ahead := steps.Claim("k")
		ahead.After = time.Now().Add(time.Hour).UnixMicro()
		first := p.enter(p.new, ahead, true)
		p.leave(p.new, first)
		both := p.enter(p.b, steps.Claim("k"), true)
		steps.Rises(t, first.Token, both.Token)
		p.leave(p.b, both)
		p.free("the old store", p.old)
		steps.Rises(t, both.Token, p.enter(p.old, steps.Claim("k"), true).Token)
	})
}

// A request to the new store that arrives after its claim has left brings nothing back.
func TestLateEnterOfTheNewStoreIsKeptOut(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		first := p.enter(p.old, steps.Claim("k"), true)
		second := p.enter(p.b, steps.Claim("k"), false)
		p.leave(p.old, first)
		p.wire.Next(faulty.Enter, faulty.Fault{Before: 20 * time.Second, Late: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.b.Await(ctx, second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Await: %v", err)
		}
		p.leave(p.b, second)
		p.free("the old store", p.old)
		time.Sleep(30 * time.Second)
		p.free("the new store", p.new)
		p.enter(p.b, steps.Claim("k"), true)
	})
}

// hooked calls before with each grant that Enter or Await is about to return.
type hooked struct {
	*memlock.Store
	before func(c driver.Claim)
}

func (h *hooked) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	got, err := h.Store.Enter(ctx, c)
	if got.Granted {
		h.before(c)
	}
	return got, err
}

func (h *hooked) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	got, err := h.Store.Await(ctx, t)
	if got.Granted {
		h.before(t.Claim)
	}
	return got, err
}

// A cancelled Lock leaves while its Enter is under way.
func TestClaimThatLeavesAsItEnters(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		h := &hooked{Store: p.old}
		b := bridge.New(h, p.new)
		h.before = func(c driver.Claim) {
			p.must(b.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}))
		}
		steps.Gone(t, "Enter of a claim that has left", steps.ErrOf(b.Enter(t.Context(), steps.Claim("k"))))
		p.free("the old store", p.old)
		p.free("the new store", p.new)
	})
}

// A cancelled Lock: an Enter that is repeated as the claim leaves brings nothing back.
func TestClaimThatLeavesAsItEntersTwice(t *testing.T) {
	for seed := range uint64(200) {
		inBubble(t, func(t *testing.T, p *pair) {
			slow := faulty.New(p.old, seed, faulty.Options{Delay: 10 * time.Millisecond})
			b := bridge.New(slow, p.wire)
			defer b.Close()
			c := steps.Claim("k")
			var calls sync.WaitGroup
			for i := range 3 {
				calls.Go(func() {
					time.Sleep(time.Duration(seed*uint64(i)%7) * time.Millisecond)
					if i == 2 {
						_ = b.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
					} else {
						_, _ = b.Enter(t.Context(), c)
					}
				})
			}
			calls.Wait()
			p.free("the old store", p.old)
			p.free("the new store", p.new)
		})
	}
}

// A claim that leaves while the old store grants it does not enter the new store.
func TestClaimThatLeavesAsTheOldStoreGrantsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		h := &hooked{Store: p.old}
		b := bridge.New(h, p.new)
		first := p.enter(p.old, steps.Claim("k"), true)
		second := p.enter(b, steps.Claim("k"), false)
		h.before = func(driver.Claim) { p.leave(b, second) }
		p.leave(p.old, first)
		steps.Gone(t, "Await of a claim that has left", steps.ErrOf(b.Await(t.Context(), second)))
		p.free("the old store", p.old)
		p.free("the new store", p.new)
	})
}

func TestRenewNamesTheStoreThatLostTheClaim(t *testing.T) {
	for _, lost := range []string{"old", "new"} {
		inBubble(t, func(t *testing.T, p *pair) {
			held := p.enter(p.b, steps.Claim("k"), true)
			other := p.new
			if lost == "old" {
				p.old.Flush()
			} else {
				p.new.Flush()
				other = p.old
			}
			err := p.b.Renew(t.Context(), []driver.Ticket{held})[0]
			if !driver.Gone(err) || !strings.Contains(err.Error(), "the "+lost+" store (memory) has lost it") {
				t.Errorf("the %s store was flushed: %v", lost, err)
			}
			synctest.Wait()
			if l, _ := other.Line(t.Context(), "k"); len(l.Claims) != 1 {
				t.Error("the other store lets the next in before the holder can have heard")
			}
			time.Sleep(2 * time.Second)
			p.free("the other store", other)
		})
	}
}

func TestLeaveFreesOneStoreWhileTheOtherDoesNotRespond(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		held := p.enter(p.b, steps.Claim("k"), true)
		p.wire.Next(faulty.Leave, faulty.Fault{Fail: true})
		steps.Unknown(t, "Leave without an answer of the new store", p.b.Leave(t.Context(), held, driver.Exit{}))
		p.leave(p.old, p.enter(p.old, steps.Claim("k"), true))
		p.leave(p.b, held)
		p.free("the new store", p.new)
	})
}

func TestTryThatTheNewStoreRefusesLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		held := p.enter(p.new, steps.Claim("k"), true)
		var busy *driver.BusyError
		_, err := p.b.Enter(t.Context(), steps.NoWait(steps.Claim("k")))
		if !errors.As(err, &busy) || busy.Token != held.Token {
			t.Errorf("got %v; want the holder in the new store", err)
		}
		p.free("the old store", p.old)
		steps.Is(t, "a permit", steps.ErrOf(p.b.Enter(t.Context(), steps.Permits("k", 1, 3))), driver.ErrKind)
		p.free("the old store", p.old)
	})
}

// A slot that a program of one phase has done is done for the programs of the next one.
func TestMarkCrossesTheMove(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		for i, step := range []struct{ leaves, sees driver.Backend }{
			{p.old, p.b}, {p.b, p.old}, {p.b, p.new}, {p.new, p.b},
		} {
			mark := fmt.Sprint("mark ", i)
			held := p.enter(step.leaves, steps.Claim("k"), true)
			p.must(step.leaves.Leave(t.Context(), held, driver.Exit{Mark: mark}))
			seen := p.enter(step.sees, steps.Claim("k"), true)
			if seen.Mark != mark {
				t.Errorf("step %d: the mark is %q; want %q", i, seen.Mark, mark)
			}
			p.leave(step.sees, seen)
		}
	})
}

// An operator sees and breaks the claims of all phases through the bridge.
func TestBreakEndsClaimsOfEveryPhase(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		holder := p.enter(p.new, steps.Claim("k"), true)
		between := p.enter(p.b, steps.Claim("k"), false) // granted by the old store, and waits in the new one
		behind := p.enter(p.old, steps.Claim("k"), false)
		l, err := p.b.Line(t.Context(), "k")
		p.must(err)
		if len(l.Claims) != 3 || !l.Claims[0].Granted || l.Claims[1].Granted || l.Claims[2].Granted {
			t.Errorf("the line is %+v", l.Claims)
		}
		for i, s := range l.Claims {
			p.must(p.b.Break(t.Context(), "k", s.Token, driver.Break{Reason: fmt.Sprint("reason ", i)}))
		}
		p.free("the old store", p.old)
		p.free("the new store", p.new)
		for i, errs := range [][]error{
			p.new.Renew(t.Context(), []driver.Ticket{holder}),
			p.b.Renew(t.Context(), []driver.Ticket{between}),
			p.old.Renew(t.Context(), []driver.Ticket{behind}),
		} {
			var gone driver.GoneError
			if !errors.As(errs[0], &gone) || !gone.Broken || gone.Reason != fmt.Sprint("reason ", i) {
				t.Errorf("claim %d: %v", i, errs[0])
			}
		}
	})
}

// A holder under notice keeps both locks until the notice is over, and then has neither.
func TestNoticeIsGivenInBothStores(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		holder := p.enter(p.b, steps.Claim("k"), true)
		p.must(p.b.Break(t.Context(), "k", holder.Token, driver.Break{Reason: "drain", Notice: 20 * time.Second}))
		for _, s := range []*memlock.Store{p.old, p.new} {
			var gone driver.GoneError
			if err := s.Renew(t.Context(), []driver.Ticket{holder})[0]; !errors.As(err, &gone) || gone.Left != 20*time.Second {
				t.Errorf("Renew in one store: %v", err)
			}
		}
		var gone driver.GoneError
		err := p.b.Renew(t.Context(), []driver.Ticket{holder})[0]
		if !errors.As(err, &gone) || gone.Left != 20*time.Second || driver.Gone(err) {
			t.Errorf("Renew: %v", err)
		}
		time.Sleep(19 * time.Second)
		if _, err := p.b.Enter(t.Context(), steps.NoWait(steps.Claim("k"))); !errors.As(err, new(*driver.BusyError)) {
			t.Errorf("Enter before the end of the notice: %v", err)
		}
		time.Sleep(2 * time.Second)
		p.free("the old store", p.old)
		p.free("the new store", p.new)
	})
}

// An operator sees which programs use which stores.
func TestSurveySeesThePhaseOfEachProgram(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		named := func(owner string) driver.Claim {
			c := steps.Claim("k")
			c.Owner = owner
			return c
		}
		long := strings.Repeat("x", limit.Owner) // has no room for the mark
		first := p.enter(p.b, named(long), true)
		p.enter(p.b, named("second"), false)
		p.enter(p.old, named("third"), false)
		p.enter(p.new, named("fourth"), false)
		all, err := bridge.Survey(t.Context(), p.old, p.new, "")
		p.must(err)
		got := map[string]string{}
		for _, s := range all {
			got[s.Owner] = fmt.Sprint(s.Phase, s.Waits)
		}
		want := map[string]string{long: "both false", "second": "both true", "third": "old true", "fourth": "new true"}
		if !maps.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
		if l, err := p.b.Line(t.Context(), "k"); err != nil || strings.Contains(fmt.Sprint(l), "(bridge)") {
			t.Errorf("the bridge shows %+v, %v", l, err)
		}
		p.leave(p.b, first)
	})
}

func TestOpenRefusesStoresThatCannotBeBridged(t *testing.T) {
	s := memlock.New()
	for _, b := range []*bridge.Backend{bridge.New(nil, s), bridge.New(s, nil), bridge.New(s, s), bridge.New(s, noAfter{memlock.New()})} {
		if _, err := fencelock.New(b, nil); !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("got %v; want ErrPermanent", err)
		} else {
			t.Log(err)
		}
	}
}

// noAfter numbers by itself.
type noAfter struct{ *memlock.Store }

func (s noAfter) Info() driver.Info {
	info := s.Store.Info()
	info.After = false
	return info
}
