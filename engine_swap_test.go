package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// swapTap is a tap on a backend that can put one claim in the place of another.
type swapTap struct {
	*tap
	store driver.Swapper
	swaps int
	swap  func(ctx context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error)
}

func newSwapTap(s *memlock.Store) *swapTap { return &swapTap{tap: newTap(s), store: s} }

func (b *swapTap) Swap(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
	b.mu.Lock()
	b.swaps++
	b.mu.Unlock()
	do := func() (driver.Ticket, bool, error) { return b.store.Swap(context.WithoutCancel(ctx), t, c) }
	if b.swap == nil {
		return do()
	}
	return b.swap(ctx, do)
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

// TestSwapIsOneRoundTrip counts what a hot key of one process costs.
func TestSwapIsOneRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		var events []string
		var handoffs int
		note := func(what string) func(fencelock.Event) {
			return func(e fencelock.Event) {
				events = append(events, fmt.Sprint(what, " ", e.Token))
				if e.Handoff {
					handoffs++
				}
			}
		}
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 4, Hooks: fencelock.Hooks{Acquired: note("got"), Released: note("left")}})
		tokens := passOn(t, c, 12)
		c.Close()
		if e, l := len(b.entered()), len(b.left()); e != 1 || b.swaps != 2 || l != 1 {
			t.Errorf("%d Enters, %d Swaps and %d Leaves for 12 grants; want 1, 2 and 1", e, b.swaps, l)
		}
		if handoffs != 9 {
			t.Errorf("%d grants are said to have been handed on here; want 9", handoffs)
		}
		var want []string
		for _, token := range tokens {
			want = append(want, fmt.Sprint("got ", token), fmt.Sprint("left ", token))
		}
		if fmt.Sprint(events) != fmt.Sprint(want) {
			t.Errorf("the hooks heard %v; want %v", events, want)
		}
	})
}

// TestSwapOfUnknownOutcome loses the answer to a Swap that was done, or not, or is done
// later, when the claim that it is about has left already.
func TestSwapOfUnknownOutcome(t *testing.T) {
	lost := errors.New("the connection broke")
	for name, meet := range map[string]func(b *swapTap, do func() (driver.Ticket, bool, error)){
		"it was done":     func(_ *swapTap, do func() (driver.Ticket, bool, error)) { do() },
		"it was not done": func(*swapTap, func() (driver.Ticket, bool, error)) {},
		"it is done before the Leave": func(b *swapTap, do func() (driver.Ticket, bool, error)) {
			b.set(func() {
				b.leave = func(_ context.Context, _ driver.Ticket, _ driver.Exit, leave func() error) error {
					b.leave = nil
					do()
					return leave()
				}
			})
		},
		"it comes too late": func(b *swapTap, do func() (driver.Ticket, bool, error)) {
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlock.Store) {
				b := newSwapTap(s)
				c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
				b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
					b.swap = nil
					meet(b, do)
					return driver.Ticket{}, false, lost
				}
				began := time.Now()
				if n := len(passOn(t, c, 6)); n != 6 {
					t.Errorf("%d of 6 had the lock", n)
				}
				if took := time.Since(began); took >= ttl/3 {
					t.Errorf("six grants took %v; nobody had to wait for a lease of %v", took, ttl)
				}
				c.Close()
			})
		})
	}
}

// TestSwapThatNobodyWaitsFor has the only one who waits give up while the store is asked
// for a claim in its name.
func TestSwapThatNobodyWaitsFor(t *testing.T) {
	for name, err := range map[string]error{"done": nil, "outcome unknown": errors.New("the connection broke")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlock.Store) {
				b := newSwapTap(s)
				c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
				ctx, giveUp := context.WithCancel(t.Context())
				b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
					giveUp()
					synctest.Wait()
					n, done, failed := do()
					return n, done && err == nil, errors.Join(failed, err)
				}
				first := lastOfItsClaim(t, c)
				var group sync.WaitGroup
				group.Go(func() {
					if _, err := c.Lock(ctx, "k"); !errors.Is(err, context.Canceled) {
						t.Errorf("Lock that was given up: %v", err)
					}
				})
				synctest.Wait()
				mustRelease(t, first)
				group.Wait()
				synctest.Wait()
				wantEmpty(t, s) // at once, and not when a lease is over
				mustRelease(t, mustLock(t, c, "k"))
				if b.swaps != 1 {
					t.Errorf("%d Swaps; want 1", b.swaps)
				}
				c.Close()
			})
		})
	}
}

// TestSwapWhileTheClientCloses: whoever waits is told, and nothing stays in the store.
func TestSwapWhileTheClientCloses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		var group sync.WaitGroup
		b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
			group.Go(func() { c.Close() })
			synctest.Wait()
			return do()
		}
		first := lastOfItsClaim(t, c)
		group.Go(func() {
			if _, err := c.Lock(t.Context(), "k"); !errors.Is(err, fencelock.ErrClosed) {
				t.Errorf("Lock while the Client closes: %v", err)
			}
		})
		synctest.Wait()
		if err := first.Release(t.Context()); err != nil {
			t.Errorf("Release while the Client closes: %v", err)
		}
		group.Wait()
		wantEmpty(t, s)
	})
}

// TestSwapThatTakesALease: what is granted by an answer that late is over.
func TestSwapThatTakesALease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
			b.swap = nil
			n, done, err := do()
			after(ttl)
			return n, done, err
		}
		first := lastOfItsClaim(t, c)
		var group sync.WaitGroup
		group.Go(func() {
			l := mustLock(t, c, "k")
			if err := l.Err(); err != nil {
				t.Errorf("the lease is over when it is given: %v", err)
			}
			mustRelease(t, l)
		})
		synctest.Wait()
		_ = first.Release(t.Context()) // its lease is over by then, too
		group.Wait()
		c.Close()
	})
}

// TestLeaseOfASwapCountsFromItsSending: the server may have begun it then.
func TestLeaseOfASwapCountsFromItsSending(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
			n, done, err := do()
			after(ttl / 5)
			return n, done, err
		}
		first := lastOfItsClaim(t, c)
		sent := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			l := mustLock(t, c, "k")
			if at := l.Deadline(); !at.Before(sent.Add(ttl)) {
				t.Errorf("a lease of %v that was asked for at %v is said to end at %v", ttl, sent, at)
			}
			mustRelease(t, l)
		})
		synctest.Wait()
		mustRelease(t, first)
		group.Wait()
		c.Close()
	})
}

// TestSwapThatTheStoreRefuses has another process in line: it is its turn.
func TestSwapThatTheStoreRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		here, there := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2}), client(t, newTap(s), &fencelock.Options{TTL: ttl})
		var order []string
		first := lastOfItsClaim(t, here)
		var group sync.WaitGroup
		for i, c := range []*fencelock.Client{here, there, here, here, here} {
			group.Go(func() {
				l := mustLock(t, c, "k")
				order = append(order, fmt.Sprint(i))
				if c == there {
					after(ttl / 10) // so that the next one here has to wait
				}
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		mustRelease(t, first)
		group.Wait()
		// The first here is in line with its gate's next claim, behind the process there.
		if got := fmt.Sprint(order); got != "[1 0 2 3 4]" {
			t.Errorf("they had the lock in the order %s; want [1 0 2 3 4]", got)
		}
		// After the claim that had to wait others are most likely in line again: to ask for a
		// Swap would be a request for nothing.
		if b.swaps != 1 {
			t.Errorf("%d Swaps; want 1", b.swaps)
		}
		here.Close()
		there.Close()
	})
}

// TestTryDuringASwap waits for the answer, and is refused by whoever gets the lock.
func TestTryDuringASwap(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newSwapTap(s)
		c := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2})
		var group sync.WaitGroup
		b.swap = func(_ context.Context, do func() (driver.Ticket, bool, error)) (driver.Ticket, bool, error) {
			b.swap = nil
			group.Go(func() {
				if _, err := c.TryLock(t.Context(), "k"); !errors.As(err, new(*fencelock.HeldError)) {
					t.Errorf("TryLock beside a Swap: %v; want a HeldError", err)
				}
			})
			synctest.Wait()
			return do()
		}
		first := lastOfItsClaim(t, c)
		done := make(chan struct{})
		group.Go(func() {
			l := mustLock(t, c, "k")
			<-done
			mustRelease(t, l)
		})
		synctest.Wait()
		mustRelease(t, first)
		synctest.Wait()
		close(done)
		group.Wait()
		c.Close()
	})
}
