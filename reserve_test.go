package fencelock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// passOn has n goroutines take and release a lock of c one after the other, in the order
// in which they came, and returns their tokens. The first one is released when all wait.
func (w *world) passOn(c *fencelock.Client, n int) (tokens []fence.Token) {
	w.Helper()
	var group sync.WaitGroup
	first := w.lock(c, "k")
	tokens = append(tokens, first.Token())
	for range n - 1 {
		group.Go(func() {
			l := w.lock(c, "k")
			tokens = append(tokens, l.Token())
			w.release(l)
		})
		synctest.Wait()
	}
	w.release(first)
	group.Wait()
	for i := range tokens[1:] {
		steps.Rises(w, tokens[i], tokens[i+1])
	}
	return tokens
}

// lastOfItsClaim returns the lease on the last token of a claim of c, which hands on twice.
func (w *world) lastOfItsClaim(c *fencelock.Client) *fencelock.Lease {
	w.Helper()
	first := w.lock(c, "k")
	last := w.later(c, "k")
	w.release(first)
	return w.got(last.wait())
}

// TestHotKeyOfOneProcessNeverLeaves counts what a hot key of one process costs.
func TestHotKeyOfOneProcessNeverLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		heard := listener{only: []fencelock.EventType{fencelock.EventAcquired, fencelock.EventReleased}}
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 4, OnEvent: heard.on})
		tokens := w.passOn(c, 40)
		c.Close()
		if e, r, l := len(w.store.entered()), w.store.count("reserve"), len(w.store.left()); e != 1 || r > 40/4+1 || l != 1 {
			t.Errorf("%d Enters, %d Reserves and %d Leaves for 40 grants; want 1, at most 11 and 1", e, r, l)
		}
		names, events := heard.take()
		if len(tokens) != 40 || len(events) != 80 {
			t.Fatalf("%d tokens, and %d events: %q", len(tokens), len(events), names)
		}
		for i, token := range tokens {
			if token != tokens[0]+fence.Token(i) {
				t.Fatalf("the tokens are %v; want one after the other", tokens)
			}
			got, left := events[2*i], events[2*i+1]
			if names[2*i] != "acquired" || names[2*i+1] != "released" || got.Token != token || left.Token != token || got.Handoff != (i > 0) {
				t.Fatalf("of token %v was heard %+v, %+v", token, got, left)
			}
		}
	})
}

// TestReserveOfUnknownOutcome loses the answer to a Reserve that was done, or not, or is
// done when its claim has left: that costs a Leave and an Enter.
func TestReserveOfUnknownOutcome(t *testing.T) {
	for name, lose := range map[string]func(p *probe){
		"it was done":     func(p *probe) { p.meddle(nil, only(atFirst(down), "reserve")) },
		"it was not done": func(p *probe) { p.meddle(only(atFirst(down), "reserve"), nil) },
		"it comes too late": func(p *probe) {
			late := make(chan request, 1)
			p.meddle(only(atFirst(func(ctx context.Context, _ string) error {
				late <- requestOf(ctx)
				return errDown
			}), "reserve"), only(atFirst(func(context.Context, string) error {
				_ = (<-late).arrive()
				return nil
			}), "leave"))
		},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
			lose(w.store)
			began := time.Now()
			steps.Same(t, "how many had the lock", len(w.passOn(c, 6)), 6)
			if took := time.Since(began); took >= ttl/3 {
				t.Errorf("six grants took %v; nobody had to wait for a lease of %v", took, ttl)
			}
		})
	}
}

// TestReleaseDoesNotWaitForAReserve: whoever gives the last token back is done, and the
// next one has the lock when the store has answered.
func TestReleaseDoesNotWaitForAReserve(t *testing.T) {
	inWorld(t, func(w *world) {
		const slow = ttl / 10
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
		w.store.meddle(nil, only(takes(slow), "reserve"))
		last := w.lastOfItsClaim(c) // its grant has had the store asked
		began := time.Now()
		next := w.later(c, "k")
		w.release(last)
		took(t, began, 0)
		l := w.got(next.wait())
		took(t, began, slow)
		steps.Same(t, "the next token", l.Token(), last.Token()+1)
		w.release(l)
		steps.Same(t, "Enters", len(w.store.entered()), 1)
	})
}

// TestReserveThatNobodyWaitsFor has the only one who waits give up while the store is
// asked. Nothing stays in line for longer than that.
func TestReserveThatNobodyWaitsFor(t *testing.T) {
	for name, err := range map[string]error{"done": nil, "outcome unknown": errDown} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
			ctx, giveUp := context.WithCancel(bg)
			w.store.meddle(nil, only(func(context.Context, string) error {
				time.Sleep(ttl / 10)
				return err
			}, "reserve"))
			last := w.lastOfItsClaim(c)
			waits := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })
			w.release(last)
			giveUp()
			w.is(errOf(waits.wait()), context.Canceled)
			time.Sleep(ttl / 10)
			synctest.Wait()
			wantEmpty(t, w.store.Store)
			w.release(w.lock(c, "k"))
		})
	}
}

// TestReserveWhileTheClientCloses: calls that wait are refused, and nothing stays in the store.
func TestReserveWhileTheClientCloses(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
		w.store.meddle(nil, only(func(ctx context.Context, _ string) error {
			select {
			case <-time.After(ttl / 10):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, "reserve"))
		last := w.lastOfItsClaim(c)
		waits := w.later(c, "k")
		w.release(last)
		began := time.Now()
		c.Close()
		took(t, began, 0)
		w.is(errOf(waits.wait()), fencelock.ErrClosed)
		wantEmpty(t, w.store.Store)
	})
}

// TestClaimThatEndsWhileTokensAreReserved: the next one has a claim of its own, and at once
// when the store says what became of the other.
func TestClaimThatEndsWhileTokensAreReserved(t *testing.T) {
	for name, slow := range map[string]time.Duration{
		"broken": ttl / 2, "broken with half of the lease left": 2 * ttl / 5, "about to end": 2 * ttl / 3, "over": 2 * ttl,
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			broken := strings.HasPrefix(name, "broken")
			c := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 2})
			renew := only(down, "renew")
			if broken {
				renew = nil
			}
			w.store.meddle(renew, only(atFirst(takes(slow)), "reserve"))
			last := w.lastOfItsClaim(c)
			began := time.Now()
			next := w.later(c, "k")
			w.release(last)
			if broken {
				must(t, w.store.Store.Break(bg, "k", int64(last.Token()), driver.Break{Reason: "enough"}))
			}
			l := w.got(next.wait())
			took(t, began, slow)
			if l.Token() <= last.Token()+2 {
				t.Errorf("token %v is one of the claim that has ended", l.Token())
			}
			w.release(l)
		})
	}
}

// TestReserveThatTheStoreRefuses has another process in line: it is its turn.
func TestReserveThatTheStoreRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		here, there := w.lengthens(&fencelock.Options{TTL: ttl, HandOff: 3}), w.brief()
		var order []string
		first := w.lock(here, "k")
		var group sync.WaitGroup
		for i, c := range []*fencelock.Client{here, there, here, here, here, here, here} {
			group.Go(func() {
				l := w.lock(c, "k")
				order = append(order, fmt.Sprint(i))
				time.Sleep(ttl / 100)
				w.release(l)
			})
			synctest.Wait()
		}
		w.release(first)
		group.Wait()
		// The first claim here serves three, then the other process has its turn. After a claim that had
		// to wait, others are most likely in line again: asking for more tokens would be for nothing.
		steps.Same(t, "they had the lock in the order", fmt.Sprint(order), "[0 2 1 3 4 5 6]")
		steps.Same(t, "Reserves", w.store.count("reserve"), 1)
	})
}
