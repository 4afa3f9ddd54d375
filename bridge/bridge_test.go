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
	old, new *memlock.Store
	wire     *faulty.Backend // of b to the new store
	b        *bridge.Backend
}

// inBubble runs f on a pair of stores in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{old: memlock.New(), new: memlock.New()}
		p.wire = faulty.New(p.new, 1, faulty.Options{})
		p.b = bridge.New(p.old, p.wire)
		f(t, p)
		p.b.Close()
	})
}

// Readers that the old store grants at once reach the new store in any order.
func TestTokensRiseBehindReadersThatOvertakeEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		first := steps.Hold(t, p.old, steps.Claim("k"))
		var readers []driver.Ticket
		for range 20 {
			readers = append(readers, steps.Wait(t, p.b, steps.Reader("k")))
		}
		bridged := steps.Wait(t, p.b, steps.Claim("k"))
		last := steps.Wait(t, p.old, steps.Claim("k"))
		steps.Leave(t, p.old, first)
		for i := len(readers) - 1; i >= 0; i-- {
			readers[i] = steps.Granted(t, p.b, readers[i])
		}
		for _, r := range readers {
			steps.Leave(t, p.b, r)
		}
		bridged = steps.Granted(t, p.b, bridged)
		steps.Leave(t, p.b, bridged)
		steps.Rises(t, bridged.Token, steps.Granted(t, p.old, last).Token)
	})
}

// The clock of the new store is ahead. A program of both locks the key on the way back: the old store must then
// number above the new one.
func TestTokensRiseOnTheWayBackFromAClockThatIsAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		ahead := steps.Claim("k")
		ahead.After = time.Now().Add(time.Hour).UnixMicro()
		first := steps.Hold(t, p.new, ahead)
		steps.Leave(t, p.new, first)
		both := steps.Hold(t, p.b, steps.Claim("k"))
		steps.Rises(t, first.Token, both.Token)
		steps.Leave(t, p.b, both)
		steps.InLine(t, "the old store", p.old, "k", 0)
		steps.Rises(t, both.Token, steps.Hold(t, p.old, steps.Claim("k")).Token)
	})
}

// A request to the new store that arrives after its claim has left brings nothing back.
func TestLateEnterOfTheNewStoreIsKeptOut(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		first := steps.Hold(t, p.old, steps.Claim("k"))
		second := steps.Wait(t, p.b, steps.Claim("k"))
		steps.Leave(t, p.old, first)
		p.wire.Next(faulty.Enter, faulty.Fault{Before: 20 * time.Second, Late: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.b.Await(ctx, second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Await: %v", err)
		}
		steps.Leave(t, p.b, second)
		steps.InLine(t, "the old store", p.old, "k", 0)
		time.Sleep(30 * time.Second)
		steps.InLine(t, "the new store", p.new, "k", 0)
		steps.Hold(t, p.b, steps.Claim("k"))
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
			steps.InLine(t, "the old store", p.old, "k", 0)
			steps.InLine(t, "the new store", p.new, "k", 0)
		})
	}
}

// A claim that leaves while the old store grants it does not enter the new store.
func TestClaimThatLeavesAsTheOldStoreGrantsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		h := watch(p.old)
		b := bridge.New(h, p.new)
		first := steps.Hold(t, p.old, steps.Claim("k"))
		second := steps.Wait(t, b, steps.Claim("k"))
		h.hooks[faulty.Await] = func() { steps.Leave(t, b, second) }
		steps.Leave(t, p.old, first)
		steps.Gone(t, "Await of a claim that has left", steps.ErrOf(b.Await(t.Context(), second)))
		steps.InLine(t, "the old store", p.old, "k", 0)
		steps.InLine(t, "the new store", p.new, "k", 0)
	})
}

func TestRenewNamesTheStoreThatLostTheClaim(t *testing.T) {
	for _, lost := range []string{"old", "new"} {
		inBubble(t, func(t *testing.T, p *pair) {
			held := steps.Hold(t, p.b, steps.Claim("k"))
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
			steps.InLine(t, "the other store", other, "k", 0)
		})
	}
}

func TestLeaveFreesOneStoreWhileTheOtherDoesNotRespond(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		held := steps.Hold(t, p.b, steps.Claim("k"))
		p.wire.Next(faulty.Leave, faulty.Fault{Fail: true})
		steps.Unknown(t, "Leave without an answer of the new store", p.b.Leave(t.Context(), held, driver.Exit{}))
		steps.Leave(t, p.old, steps.Hold(t, p.old, steps.Claim("k")))
		steps.Leave(t, p.b, held)
		steps.InLine(t, "the new store", p.new, "k", 0)
	})
}

func TestTryThatTheNewStoreRefusesLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		held := steps.Hold(t, p.new, steps.Claim("k"))
		var busy *driver.BusyError
		_, err := p.b.Enter(t.Context(), steps.NoWait(steps.Claim("k")))
		if !errors.As(err, &busy) || busy.Token != held.Token {
			t.Errorf("got %v; want the holder in the new store", err)
		}
		steps.InLine(t, "the old store", p.old, "k", 0)
		steps.Is(t, "a permit", steps.ErrOf(p.b.Enter(t.Context(), steps.Permits("k", 1, 3))), driver.ErrKind)
		steps.InLine(t, "the old store", p.old, "k", 0)
	})
}

// A slot that a program of one phase has done is done for the programs of the next one.
func TestMarkCrossesTheMove(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		for i, step := range []struct{ leaves, sees driver.Backend }{
			{p.old, p.b}, {p.b, p.old}, {p.b, p.new}, {p.new, p.b},
		} {
			mark := fmt.Sprint("mark ", i)
			held := steps.Hold(t, step.leaves, steps.Claim("k"))
			steps.Must(t, step.leaves.Leave(t.Context(), held, driver.Exit{Mark: mark}))
			seen := steps.Hold(t, step.sees, steps.Claim("k"))
			if seen.Mark != mark {
				t.Errorf("step %d: the mark is %q; want %q", i, seen.Mark, mark)
			}
			steps.Leave(t, step.sees, seen)
		}
	})
}

// An operator sees and breaks the claims of all phases through the bridge.
func TestBreakEndsClaimsOfEveryPhase(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		holder := steps.Hold(t, p.new, steps.Claim("k"))
		between := steps.Wait(t, p.b, steps.Claim("k")) // granted by the old store, and waits in the new one
		behind := steps.Wait(t, p.old, steps.Claim("k"))
		l, err := p.b.Line(t.Context(), "k")
		steps.Must(t, err)
		if len(l.Claims) != 3 || !l.Claims[0].Granted || l.Claims[1].Granted || l.Claims[2].Granted {
			t.Errorf("the line is %+v", l.Claims)
		}
		for i, s := range l.Claims {
			steps.Must(t, p.b.Break(t.Context(), "k", s.Token, driver.Break{Reason: fmt.Sprint("reason ", i)}))
		}
		steps.InLine(t, "the old store", p.old, "k", 0)
		steps.InLine(t, "the new store", p.new, "k", 0)
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
		holder := steps.Hold(t, p.b, steps.Claim("k"))
		steps.Must(t, p.b.Break(t.Context(), "k", holder.Token, driver.Break{Reason: "drain", Notice: 20 * time.Second}))
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
		steps.InLine(t, "the old store", p.old, "k", 0)
		steps.InLine(t, "the new store", p.new, "k", 0)
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
		first := steps.Hold(t, p.b, named(long))
		steps.Wait(t, p.b, named("second"))
		steps.Wait(t, p.old, named("third"))
		steps.Wait(t, p.new, named("fourth"))
		all, err := bridge.Survey(t.Context(), p.old, p.new, "")
		steps.Must(t, err)
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
		steps.Leave(t, p.b, first)
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
