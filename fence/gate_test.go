package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// neighbours are pairs of a token and the next: where a float loses the last digit,
// where texts change their length, and at the ends.
var neighbours = [][2]fence.Token{
	{1, 2}, {9, 10}, {99, 100}, {1<<53 - 1, 1 << 53}, {1 << 53, 1<<53 + 1}, {1<<53 + 1, 1<<53 + 2},
	{999999999999999999, 1000000000000000000}, {1<<62 - 1, 1 << 62}, {1 << 62, 1<<62 + 1}, {math.MaxInt64 - 1, math.MaxInt64},
}

func TestGateRefusesSmallerTokensOnly(t *testing.T) {
	for _, pair := range neighbours {
		old, new := pair[0], pair[1]
		g := fence.Gate{Resource: "orders.log"}
		ran := 0
		write := func(tok fence.Token) error {
			return g.Do(t.Context(), tok, func() error { ran++; return nil })
		}
		for _, tok := range []fence.Token{old, old, new, new} {
			steps.Well(t, tok, write(tok))
		}
		err := write(old)
		var stale *fence.StaleError
		if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "orders.log", Token: old, Seen: new}) {
			t.Errorf("%v after %v: %v", old, new, err)
		}
		if err := write(new); err != nil || ran != 5 {
			t.Errorf("a refusal changed the gate: %v, %d writes", err, ran)
		}
	}
}

func TestGuardsLetNobodyInWithoutAToken(t *testing.T) {
	var g fence.Gate
	var gs fence.Gates
	for _, tok := range []fence.Token{0, -1, math.MinInt64} {
		if err := g.Do(t.Context(), tok, func() error { t.Error("let in"); return nil }); !errors.Is(err, fence.ErrNoToken) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%d: %v", int64(tok), err)
		}
		if err := gs.Do(t.Context(), "a", tok, func(context.Context) error { t.Error("let in"); return nil }); !errors.Is(err, fence.ErrNoToken) {
			t.Errorf("%d: %v", int64(tok), err)
		}
	}
}

// A comparison that is not one step with the write guards nothing: the old holder
// would pass, be paused, and write after the new one.
func TestNobodyIsLetInWhileAnotherIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var log []string
		done := make(chan error, 2)
		write := func(tok fence.Token, takes time.Duration) {
			done <- g.Do(t.Context(), tok, func() error {
				log = append(log, fmt.Sprint("begin ", tok))
				time.Sleep(takes)
				log = append(log, fmt.Sprint("end ", tok))
				return nil
			})
		}
		go write(7, time.Hour)
		synctest.Wait()
		go write(9, time.Hour)
		synctest.Wait()
		for range 2 {
			steps.OK(t, <-done)
		}
		steps.Same(t, "the order", strings.Join(log, ", "), "begin 7, end 7, begin 9, end 9")
	})
}

// Who waits is judged when its turn comes: it may have become stale by then.
func TestWaiterIsJudgedWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		go g.Do(t.Context(), 9, func() error { time.Sleep(time.Hour); return nil })
		synctest.Wait()
		err := g.Do(t.Context(), 8, func() error { t.Error("let in"); return nil })
		steps.Is(t, "Do", err, fence.ErrStale)
	})
}

func TestWaitForTheGateEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		inside := make(chan struct{})
		go g.Do(t.Context(), 7, func() error { <-inside; return nil })
		synctest.Wait()
		why := errors.New("the lock was lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { time.Sleep(time.Second); cancel(why) }()
		if err := g.Do(ctx, 9, func() error { t.Error("let in"); return nil }); err != why {
			t.Errorf("got %v", err)
		}
		close(inside)
		// A gate that is open lets nobody in whose context has ended.
		if err := g.Do(ctx, 9, func() error { t.Error("let in"); return nil }); err != why {
			t.Errorf("got %v", err)
		}
		// It did not count as seen.
		steps.OK(t, g.Do(t.Context(), 8, func() error { return nil }))
	})
}

func TestGateStaysInOrderAfterErrorsAndPanics(t *testing.T) {
	var g fence.Gate
	broken := errors.New("disk full")
	if err := g.Do(t.Context(), 7, func() error { return broken }); err != broken {
		t.Error(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		_ = g.Do(t.Context(), 9, func() error { panic("at the disco") })
	}()
	steps.Is(t, "what panicked may have written", g.Do(t.Context(), 8, func() error { return nil }), fence.ErrStale)
	steps.OK(t, g.Do(t.Context(), 9, func() error { return nil }))
}

func TestSeedIsWhatAGateRemembersOfItsFormerLife(t *testing.T) {
	var g fence.Gate
	for _, tok := range []fence.Token{9, 3, 0} { // it never goes back
		steps.Must(t, g.Seed(t.Context(), tok))
	}
	steps.Is(t, "Do", g.Do(t.Context(), 8, func() error { return nil }), fence.ErrStale)
	steps.OK(t, g.Do(t.Context(), 9, func() error { return nil }))
}

func TestResourcesHaveMarksOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gs fence.Gates
		inside := make(chan struct{})
		go gs.Do(t.Context(), "a", 9, func(context.Context) error { <-inside; return nil })
		synctest.Wait()
		if err := gs.Do(t.Context(), "b", 7, func(context.Context) error { return nil }); err != nil {
			t.Error(err) // neither waited nor refused
		}
		close(inside)
		var stale *fence.StaleError
		if err := gs.Do(t.Context(), "a", 7, func(context.Context) error { return nil }); !errors.As(err, &stale) || stale.Resource != "a" {
			t.Error(err)
		}
	})
}

// What is accepted never goes back, whoever comes when.
func TestAcceptedTokensNeverFallUnderConcurrency(t *testing.T) {
	var gs fence.Gates
	var last fence.Token // guarded by the gate
	var wg sync.WaitGroup
	for w := range fence.Token(8) {
		wg.Go(func() {
			for i := range fence.Token(500) {
				tok := 1<<53 + 8*i + w*5%8
				err := gs.Do(t.Context(), "a", tok, func(context.Context) error {
					if tok < last {
						t.Errorf("%v was let in after %v", tok, last)
					}
					last = tok
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestStaleErrorSaysWhatMetAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  fence.StaleError
		want string
	}{
		{fence.StaleError{Resource: "orders/42", Token: 7, Seen: 9}, "fence: orders/42: token 7 is stale, 9 was seen: the lock has passed on; take it again before writing"},
		{fence.StaleError{}, "fence: the token is stale: the lock has passed on; take it again before writing"},
		{fence.StaleError{Resource: "a\nb\x00", Token: 1, Seen: 2}, `fence: a\nb\x00: token 1 is stale, 2 was seen: the lock has passed on; take it again before writing`},
	} {
		steps.Same(t, "the text", c.err.Error(), c.want)
	}
	if long := (&fence.StaleError{Resource: strings.Repeat("x", 5000)}).Error(); len(long) > 400 {
		t.Errorf("%d bytes", len(long))
	}
}
