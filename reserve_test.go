package fencelock_test

import (
	"context"
	"errors"
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
	"github.com/fencelock/fencelock/memlock"
)

// reserveTap is a tap on a backend that can lengthen the span of a claim.
type reserveTap struct {
	*tap
	store    driver.Reserver
	reserves int
	reserve  func(ctx context.Context, do func() (bool, error)) (bool, error)
}

func newReserveTap(s *memlock.Store) *reserveTap { return &reserveTap{tap: newTap(s), store: s} }

func (b *reserveTap) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	b.mu.Lock()
	b.reserves++
	f := b.reserve
	b.mu.Unlock()
	do := func() (bool, error) { return b.store.Reserve(context.WithoutCancel(ctx), t, span) }
	if f == nil {
		return do()
	}
	return f(ctx, do)
}

// slowly has a store take so long for an answer to Reserve, after it has done it.
func slowly(d time.Duration) func(context.Context, func() (bool, error)) (bool, error) {
	return func(_ context.Context, do func() (bool, error)) (bool, error) {
		done, err := do()
		after(d)
		return done, err
	}
}

// passOn has n goroutines take and release a lock of c one after the other, in the order
// in which they came, and returns their tokens. The first one is released when all wait.
func passOn(t *testing.T, c *fencelock.Client, n int) (tokens []fence.Token) {
	t.Helper()
	var group sync.WaitGroup
	first := mustLock(t, c, "k")
	tokens = append(tokens, first.Token())
	for range n - 1 {
		group.Go(func() {
			l := mustLock(t, c, "k")
			tokens = append(tokens, l.Token())
			mustRelease(t, l)
		})
		synctest.Wait()
	}
	mustRelease(t, first)
	group.Wait()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("the tokens are %v; want each larger than the one before", tokens)
			break
		}
	}
	return tokens
}

// lastOfItsClaim returns the lease on the last token of a claim of c, which hands on twice.
func lastOfItsClaim(t *testing.T, c *fencelock.Client) *fencelock.Lease {
	t.Helper()
	first, last := mustLock(t, c, "k"), make(chan *fencelock.Lease, 1)
	go func() { last <- mustLock(t, c, "k") }()
	synctest.Wait()
	mustRelease(t, first)
	return <-last
}

// TestHotKeyOfOneProcessNeverLeaves counts what a hot key of one process costs.
func TestHotKeyOfOneProcessNeverLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newReserveTap(s)
		var events []string
		var handoffs int
		note := func(e fencelock.Event) {
			what := map[fencelock.EventType]string{fencelock.EventAcquired: "got", fencelock.EventReleased: "left"}[e.Type]
			if what == "" {
				return
			}
			events = append(events, fmt.Sprint(what, " ", e.Token))
			if e.Handoff {
				handoffs++
			}
		}
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 4, OnEvent: note})
		tokens := passOn(t, c, 40)
		c.Close()
		if e, l := len(b.entered()), len(b.left()); e != 1 || b.reserves > 40/4+1 || l != 1 {
			t.Errorf("%d Enters, %d Reserves and %d Leaves for 40 grants; want 1, at most 11 and 1", e, b.reserves, l)
		}
		steps.Same(t, "grants are said to have been handed on here", handoffs, 39)
		var want []string
		for i, token := range tokens {
			if token != tokens[0]+fence.Token(i) {
				t.Errorf("the tokens are %v; want one after the other", tokens)
				break
			}
			want = append(want, fmt.Sprint("got ", token), fmt.Sprint("left ", token))
		}
		if fmt.Sprint(events) != fmt.Sprint(want) {
			t.Errorf("the hooks got\n%v, want\n%v", events, want)
		}
	})
}

// TestReserveOfUnknownOutcome loses the answer to a Reserve that was done, or not, or is
// done when its claim has left: that costs a Leave and an Enter.
func TestReserveOfUnknownOutcome(t *testing.T) {
	lost := errors.New("the connection broke")
	for name, meet := range map[string]func(b *reserveTap, do func() (bool, error)){
		"it was done":     func(_ *reserveTap, do func() (bool, error)) { do() },
		"it was not done": func(*reserveTap, func() (bool, error)) {},
		"it comes too late": func(b *reserveTap, do func() (bool, error)) {
			b.set(func() {
				b.leave = func(_ context.Context, _ driver.Ticket, _ driver.Exit, leave func() error) error {
					b.leave = nil
					err := leave()
					do()
					return err
				}
			})
		},
	} {
		runInBubble(t, name, func(t *testing.T, s *memlock.Store) {
			b := newReserveTap(s)
			c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
			b.reserve = func(_ context.Context, do func() (bool, error)) (bool, error) {
				b.reserve = nil
				meet(b, do)
				return false, lost
			}
			began := time.Now()
			steps.Same(t, "how many had the lock", len(passOn(t, c, 6)), 6)
			if took := time.Since(began); took >= ttl/3 {
				t.Errorf("six grants took %v; nobody had to wait for a lease of %v", took, ttl)
			}
		})
	}
}

// TestReleaseDoesNotWaitForAReserve: whoever gives the last token back is done, and the
// next one has the lock when the store has answered.
func TestReleaseDoesNotWaitForAReserve(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		const slow = ttl / 10
		b := newReserveTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		b.reserve = slowly(slow)
		last := lastOfItsClaim(t, c) // its grant has had the store asked
		var group sync.WaitGroup
		began := time.Now()
		group.Go(func() {
			l := mustLock(t, c, "k")
			took(t, began, slow)
			if l.Token() != last.Token()+1 {
				t.Errorf("token %v follows %v", l.Token(), last.Token())
			}
			mustRelease(t, l)
		})
		synctest.Wait()
		mustRelease(t, last)
		took(t, began, 0)
		group.Wait()
		steps.Same(t, "Enters", len(b.entered()), 1)
	})
}

// TestReserveThatNobodyWaitsFor has the only one who waits give up while the store is
// asked. Nothing stays in line for longer than that.
func TestReserveThatNobodyWaitsFor(t *testing.T) {
	for name, err := range map[string]error{"done": nil, "outcome unknown": errors.New("the connection broke")} {
		runInBubble(t, name, func(t *testing.T, s *memlock.Store) {
			b := newReserveTap(s)
			c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
			ctx, giveUp := context.WithCancel(t.Context())
			b.reserve = func(_ context.Context, do func() (bool, error)) (bool, error) {
				done, failed := do()
				after(ttl / 10)
				return done && err == nil, errors.Join(failed, err)
			}
			last := lastOfItsClaim(t, c)
			var group sync.WaitGroup
			group.Go(func() {
				steps.Is(t, "Lock that was given up", errOf(c.Lock(ctx, "k")), context.Canceled)
			})
			synctest.Wait()
			mustRelease(t, last)
			giveUp()
			group.Wait()
			after(ttl / 10)
			synctest.Wait()
			wantEmpty(t, s)
			mustRelease(t, mustLock(t, c, "k"))
		})
	}
}

// TestReserveWhileTheClientCloses: calls that wait are refused, and nothing stays in the store.
func TestReserveWhileTheClientCloses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newReserveTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		b.reserve = func(ctx context.Context, do func() (bool, error)) (bool, error) {
			done, err := do()
			select {
			case <-time.After(ttl / 10):
				return done, err
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		last := lastOfItsClaim(t, c)
		var group sync.WaitGroup
		group.Go(func() {
			steps.Is(t, "Lock while the Client closes", errOf(c.Lock(t.Context(), "k")), fencelock.ErrClosed)
		})
		synctest.Wait()
		mustRelease(t, last)
		began := time.Now()
		c.Close()
		took(t, began, 0)
		group.Wait()
		wantEmpty(t, s)
	})
}

// TestClaimThatEndsWhileTokensAreReserved: the next one has a claim of its own, and at once
// when the store says what became of the other.
func TestClaimThatEndsWhileTokensAreReserved(t *testing.T) {
	for name, slow := range map[string]time.Duration{
		"broken": ttl / 2, "broken with half of the lease left": 2 * ttl / 5, "about to end": 2 * ttl / 3, "over": 2 * ttl,
	} {
		runInBubble(t, name, func(t *testing.T, s *memlock.Store) {
			b := newReserveTap(s)
			b.renew = func(_ context.Context, ts []driver.Ticket, do func() []error) []error {
				if strings.HasPrefix(name, "broken") {
					return do()
				}
				return all(ts, errors.New("the network is out"))
			}
			c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
			b.reserve = func(ctx context.Context, do func() (bool, error)) (bool, error) {
				b.reserve = nil
				return slowly(slow)(ctx, do)
			}
			last := lastOfItsClaim(t, c)
			var group sync.WaitGroup
			began := time.Now()
			group.Go(func() {
				l := mustLock(t, c, "k")
				ok(t, l.Err())
				took(t, began, slow)
				if l.Token() <= last.Token()+2 {
					t.Errorf("token %v is one of the claim that has ended", l.Token())
				}
				mustRelease(t, l)
			})
			synctest.Wait()
			mustRelease(t, last)
			if strings.HasPrefix(name, "broken") {
				s.Break(t.Context(), "k", int64(last.Token()), driver.Break{Reason: "enough"})
			}
			group.Wait()
		})
	}
}

// TestReserveThatTheStoreRefuses has another process in line: it is its turn.
func TestReserveThatTheStoreRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newReserveTap(s)
		here, there := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 3}), plain(t, s)
		var order []string
		first := mustLock(t, here, "k")
		var group sync.WaitGroup
		for i, c := range []*fencelock.Client{here, there, here, here, here, here, here} {
			group.Go(func() {
				l := mustLock(t, c, "k")
				order = append(order, fmt.Sprint(i))
				after(ttl / 100)
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		mustRelease(t, first)
		group.Wait()
		// The first claim here serves three, then the other process has its turn. After a claim that had
		// to wait, others are most likely in line again: asking for more tokens would be for nothing.
		steps.Same(t, "they had the lock in the order", fmt.Sprint(order), "[0 2 1 3 4 5 6]")
		steps.Same(t, "Reserves", b.reserves, 1)
	})
}
