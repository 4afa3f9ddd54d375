package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/memlock"
)

func claim(key string, id int) driver.Claim {
	return driver.Claim{
		Key: key, ID: fmt.Sprintf("%032d", id), Owner: "test",
		Capacity: driver.RW, Weight: driver.RW, TTL: 30 * time.Second, Span: 1,
	}
}

// inBubble runs f with a wrapped Store, and closes the wrapper.
func inBubble(t *testing.T, o faulty.Options, f func(t *testing.T, store *memlock.Store, b *faulty.Backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		b := faulty.New(store, 1, o)
		defer b.Close()
		f(t, store, b)
	})
}

// inLine counts the claims on key.
func inLine(t *testing.T, store *memlock.Store, key string) int {
	t.Helper()
	l, err := store.Line(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(l.Claims)
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestWithoutFaultsItKeepsTheLaws(t *testing.T) {
	store := memlock.New()
	open := func(t *testing.T) driver.Backend {
		b := faulty.New(store, 1, faulty.Options{})
		t.Cleanup(func() { b.Close() })
		return b
	}
	drivertest.Run(t, open, drivertest.InBubbles(), drivertest.ExpiryLag(0))
	drivertest.ModelInBubbles(t, open)
}

func TestWithDelaysItAnswersAsTheModelSays(t *testing.T) {
	store := memlock.New()
	drivertest.Model(t, func(t *testing.T) driver.Backend {
		b := faulty.New(store, 1, faulty.Options{Delay: time.Millisecond})
		t.Cleanup(func() { b.Close() })
		return b
	}, 1)
}

func TestFailAnswersAnErrorBeforeTheEffect(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Fail: true})
		if _, err := b.Enter(t.Context(), claim("k", 1)); !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("got %v; want the injected fault", err)
		}
		if n := inLine(t, store, "k"); n != 0 {
			t.Errorf("%d claims are in line; want none", n)
		}
		if _, err := b.Enter(t.Context(), claim("k", 1)); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestLoseAnswersAnErrorAfterTheEffect(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		own := errors.New("connection reset")
		b.Next(faulty.Enter, faulty.Fault{Lose: true, Err: own})
		if _, err := b.Enter(t.Context(), claim("k", 1)); !errors.Is(err, own) {
			t.Errorf("got %v; want the error that was ordered", err)
		}
		if n := inLine(t, store, "k"); n != 1 {
			t.Errorf("%d claims are in line; want 1", n)
		}
	})
}

func TestSilentFaultAnswersNothingUntilTheContextEnds(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Lose: true, Silent: true})
		start := time.Now()
		_, err := b.Enter(timeout(t, 3*time.Second), claim("k", 1))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("got %v after %v; want the context's error after 3s", err, time.Since(start))
		}
		if n := inLine(t, store, "k"); n != 1 {
			t.Errorf("%d claims are in line; want 1", n)
		}
	})
}

func TestLateRequestTakesEffectAfterItsCallerHasGivenUp(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Before: 5 * time.Second, Late: true})
		_, err := b.Enter(timeout(t, 2*time.Second), claim("k", 1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want the context's error", err)
		}
		if n := inLine(t, store, "k"); n != 0 {
			t.Errorf("%d claims are in line after 2s; want none yet", n)
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if n := inLine(t, store, "k"); n != 1 {
			t.Errorf("%d claims are in line after 5s; want the delayed one", n)
		}
	})
}

func TestRequestUnderWayIsRecalledUnlessLate(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Before: 5 * time.Second})
		if _, err := b.Enter(timeout(t, 2*time.Second), claim("k", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want the context's error", err)
		}
		<-time.After(10 * time.Second)
		if n := inLine(t, store, "k"); n != 0 {
			t.Errorf("%d claims are in line; want none", n)
		}
	})
}

func TestSlowAnswerComesTooLateButTheEffectStays(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Before: time.Second, After: 4 * time.Second})
		if _, err := b.Enter(timeout(t, 2*time.Second), claim("k", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want the context's error", err)
		}
		if n := inLine(t, store, "k"); n != 1 {
			t.Errorf("%d claims are in line; want 1", n)
		}
	})
}

func TestGateHoldsARequestBack(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		gate := make(chan struct{})
		b.Next(faulty.Enter, faulty.Fault{Gate: gate})
		done := make(chan error, 1)
		go func() {
			_, err := b.Enter(t.Context(), claim("k", 1))
			done <- err
		}()
		synctest.Wait()
		// Leave overtakes the Enter: the tombstone must win.
		if err := b.Leave(t.Context(), driver.Ticket{Claim: claim("k", 1)}, driver.Exit{}); !driver.Gone(err) {
			t.Errorf("Leave: %v", err)
		}
		close(gate)
		if err := <-done; !driver.Gone(err) {
			t.Errorf("the delayed Enter answered %v; want ErrGone", err)
		}
	})
}

func TestPauseStopsEverythingUntilResume(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Pause()
		if _, err := b.Enter(timeout(t, time.Second), claim("k", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter answered %v; want the context's error", err)
		}
		b.Next(faulty.Enter, faulty.Fault{Late: true})
		if _, err := b.Enter(timeout(t, time.Second), claim("late", 2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter answered %v; want the context's error", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.Enter(t.Context(), claim("patient", 3))
			done <- err
		}()
		<-time.After(time.Hour)
		if n := inLine(t, store, "k") + inLine(t, store, "late") + inLine(t, store, "patient"); n != 0 {
			t.Errorf("%d claims entered a server that is paused", n)
		}
		b.Resume()
		if err := <-done; err != nil {
			t.Errorf("the call that waited: %v", err)
		}
		synctest.Wait()
		if k, late := inLine(t, store, "k"), inLine(t, store, "late"); k != 0 || late != 1 {
			t.Errorf("after Resume %d recalled and %d late requests took effect; want 0 and 1", k, late)
		}
	})
}

func TestDroppedPushesLeaveTheTimer(t *testing.T) {
	for _, drop := range []bool{false, true} {
		inBubble(t, faulty.Options{DropPushes: drop}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
			holder, err := b.Enter(t.Context(), claim("k", 1))
			if err != nil {
				t.Fatal(err)
			}
			next, err := b.Enter(t.Context(), claim("k", 2))
			if err != nil {
				t.Fatal(err)
			}
			leave := time.AfterFunc(300*time.Millisecond, func() { store.Leave(context.Background(), holder, driver.Exit{}) })
			defer leave.Stop()
			start := time.Now()
			for !next.Granted {
				if next, err = b.Await(t.Context(), next); err != nil {
					t.Fatal(err)
				}
			}
			want := 300 * time.Millisecond
			if drop {
				want = time.Second
			}
			if took := time.Since(start); took != want {
				t.Errorf("with pushes dropped %v the grant came after %v; want %v", drop, took, want)
			}
		})
	}
}

func TestDroppedPushesStillLookWhenTheHeadExpires(t *testing.T) {
	inBubble(t, faulty.Options{DropPushes: true}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		short := claim("k", 1)
		short.TTL = 200 * time.Millisecond
		if _, err := b.Enter(t.Context(), short); err != nil {
			t.Fatal(err)
		}
		next, err := b.Enter(t.Context(), claim("k", 2))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		next, err = b.Await(t.Context(), next)
		if err != nil || !next.Granted || time.Since(start) != short.TTL {
			t.Errorf("granted %v, error %v after %v; want a grant after %v", next.Granted, err, time.Since(start), short.TTL)
		}
	})
}

func TestOrderedFaultsComeInOrderAndPerMethod(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		one, two := errors.New("one"), errors.New("two")
		b.Next(faulty.Renew, faulty.Fault{Fail: true, Err: one})
		b.Next(faulty.Renew, faulty.Fault{Fail: true, Err: two})
		ticket, err := b.Enter(t.Context(), claim("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{one, two, nil} {
			for _, err := range b.Renew(t.Context(), []driver.Ticket{ticket, ticket}) {
				if !errors.Is(err, want) {
					t.Errorf("Renew answered %v; want %v", err, want)
				}
			}
		}
		if b.Calls(faulty.Renew) != 3 || b.Faults(faulty.Renew) != 2 || b.Calls(faulty.Enter) != 1 || b.Faults(faulty.Enter) != 0 {
			t.Errorf("counted %d calls and %d faults of Renew; want 3 and 2", b.Calls(faulty.Renew), b.Faults(faulty.Renew))
		}
	})
}

func TestEveryMethodMeetsFaults(t *testing.T) {
	inBubble(t, faulty.Options{Fail: 1}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		ctx, ticket := t.Context(), driver.Ticket{Claim: claim("k", 1), Token: 1}
		_, entered := b.Enter(ctx, ticket.Claim)
		_, awaited := b.Await(ctx, ticket)
		_, line := b.Line(ctx, "k")
		var lines error
		for _, err := range b.Lines(ctx, "") {
			lines = err
		}
		for what, err := range map[string]error{
			"Enter": entered, "Await": awaited, "Line": line, "Lines": lines,
			"Renew": b.Renew(ctx, []driver.Ticket{ticket})[0],
			"Leave": b.Leave(ctx, ticket, driver.Exit{}),
			"Break": b.Break(ctx, "k", 1, ""),
		} {
			if !errors.Is(err, faulty.ErrInjected) {
				t.Errorf("%s answered %v; want the injected fault", what, err)
			}
		}
		b.Set(faulty.Options{})
		if _, err := b.Enter(ctx, ticket.Claim); err != nil {
			t.Errorf("after the faults were taken away: %v", err)
		}
	})
}

func TestCloseRecallsLateRequests(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Before: time.Hour, Late: true})
		b.Enter(timeout(t, time.Second), claim("k", 1))
		start := time.Now()
		if err := b.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("Close answered %v after %v", err, time.Since(start))
		}
		<-time.After(2 * time.Hour)
		if n := inLine(t, store, "k"); n != 0 {
			t.Errorf("%d claims entered after Close", n)
		}
		if _, err := b.Enter(t.Context(), claim("k", 1)); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Enter after Close answered %v", err)
		}
	})
}

// history plays the same calls from several goroutines and notes every answer and
// when it came.
func history(t *testing.T, seed uint64) (notes []string) {
	synctest.Test(t, func(t *testing.T) {
		b := faulty.New(memlock.New(), seed, faulty.Options{Delay: 200 * time.Millisecond, Fail: 0.2, Lose: 0.2, Late: 0.2})
		defer b.Close()
		start := time.Now()
		var mu sync.Mutex
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				key := fmt.Sprintf("key %d", worker)
				for i := range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
					ticket, err := b.Enter(ctx, claim(key, i))
					cancel()
					note := fmt.Sprintf("%s %02d %v granted %v error %v", key, i, time.Since(start), ticket.Granted, err)
					b.Leave(t.Context(), driver.Ticket{Claim: claim(key, i)}, driver.Exit{})
					mu.Lock()
					notes = append(notes, note)
					mu.Unlock()
				}
			})
		}
		group.Wait()
	})
	slices.Sort(notes)
	return notes
}

func TestSameSeedSameFaults(t *testing.T) {
	first := history(t, 7)
	for range 3 {
		if again := history(t, 7); !slices.Equal(first, again) {
			t.Fatalf("two runs from one seed differ:\n%q\n%q", first, again)
		}
	}
	if slices.Equal(first, history(t, 8)) {
		t.Errorf("another seed drew the same faults")
	}
}
