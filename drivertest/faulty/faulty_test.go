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
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

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

// enter sends an Enter that must answer want.
func enter(t *testing.T, b *faulty.Backend, ctx context.Context, c driver.Claim, want error) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(ctx, c)
	steps.Is(t, "Enter", err, want)
	return ticket
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

func TestRequestMeetsItsFault(t *testing.T) {
	own, late := errors.New("connection reset"), context.DeadlineExceeded
	const second = time.Second
	for name, c := range map[string]struct {
		fault         faulty.Fault
		want          error
		took          time.Duration
		atOnce, after int // claims in line when the answer comes, and long after
	}{
		"without":                    {faulty.Fault{}, nil, 0, 1, 1},
		"fails before the effect":    {faulty.Fault{Fail: true}, faulty.ErrInjected, 0, 0, 0},
		"loses the answer":           {faulty.Fault{Lose: true, Err: own}, own, 0, 1, 1},
		"answers nothing":            {faulty.Fault{Lose: true, After: time.Hour}, late, 2 * second, 1, 1},
		"comes late":                 {faulty.Fault{Before: 5 * second, Late: true}, late, 2 * second, 0, 1},
		"is recalled":                {faulty.Fault{Before: 5 * second}, late, 2 * second, 0, 0},
		"is answered late":           {faulty.Fault{Before: second, After: 4 * second}, late, 2 * second, 1, 1},
		"is answered after a second": {faulty.Fault{After: second}, nil, second, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
				b.Next(faulty.Enter, c.fault)
				start := time.Now()
				enter(t, b, timeout(t, 2*time.Second), steps.Claim("k"), c.want)
				steps.Same(t, "the answer came after", time.Since(start), c.took)
				steps.InLine(t, "when the answer came", store, "k", c.atOnce)
				<-time.After(10 * time.Second)
				steps.InLine(t, "long after", store, "k", c.after)
			})
		})
	}
}

func TestPauseStopsEverythingUntilResume(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Pause()
		enter(t, b, timeout(t, time.Second), steps.Claim("k"), context.DeadlineExceeded)
		b.Next(faulty.Enter, faulty.Fault{Late: true})
		enter(t, b, timeout(t, time.Second), steps.Claim("late"), context.DeadlineExceeded)
		done := make(chan error, 1)
		go func() {
			_, err := b.Enter(t.Context(), steps.Claim("waits"))
			done <- err
		}()
		<-time.After(time.Hour)
		for _, key := range []string{"k", "late", "waits"} {
			steps.InLine(t, "paused", store, key, 0)
		}
		b.Resume()
		steps.Well(t, "the call that waited", <-done)
		synctest.Wait()
		steps.InLine(t, "resumed", store, "k", 0)    // it was recalled
		steps.InLine(t, "resumed", store, "late", 1) // it took effect
	})
}

func TestDroppedPushesLeaveTheTimer(t *testing.T) {
	for _, drop := range []bool{false, true} {
		inBubble(t, faulty.Options{DropPushes: drop}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
			holder := enter(t, b, t.Context(), steps.Claim("k"), nil)
			next := enter(t, b, t.Context(), steps.Claim("k"), nil)
			leave := time.AfterFunc(300*time.Millisecond, func() { store.Leave(context.Background(), holder, driver.Exit{}) })
			defer leave.Stop()
			start := time.Now()
			for !next.Granted {
				var err error
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
		short := steps.Claim("k")
		short.TTL = 200 * time.Millisecond
		enter(t, b, t.Context(), short, nil)
		next := enter(t, b, t.Context(), steps.Claim("k"), nil)
		start := time.Now()
		next, err := b.Await(t.Context(), next)
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
		ticket := enter(t, b, t.Context(), steps.Claim("k"), nil)
		for _, want := range []error{one, two, nil} {
			for _, err := range b.Renew(t.Context(), []driver.Ticket{ticket, ticket}) {
				steps.Is(t, "Renew", err, want)
			}
		}
	})
}

func TestEveryMethodMeetsFaults(t *testing.T) {
	inBubble(t, faulty.Options{Fail: 1}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		ctx, ticket := t.Context(), driver.Ticket{Claim: steps.Claim("k"), Token: 1}
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
			"Break": b.Break(ctx, "k", 1, driver.Break{}),
		} {
			if !errors.Is(err, faulty.ErrInjected) {
				t.Errorf("%s answered %v; want the injected fault", what, err)
			}
		}
		b.Set(faulty.Options{})
		enter(t, b, ctx, ticket.Claim, nil)
	})
}

func TestCloseRecallsLateRequests(t *testing.T) {
	inBubble(t, faulty.Options{}, func(t *testing.T, store *memlock.Store, b *faulty.Backend) {
		b.Next(faulty.Enter, faulty.Fault{Before: time.Hour, Late: true})
		b.Enter(timeout(t, time.Second), steps.Claim("k"))
		start := time.Now()
		if err := b.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("Close answered %v after %v", err, time.Since(start))
		}
		<-time.After(2 * time.Hour)
		steps.InLine(t, "long after", store, "k", 0)
		enter(t, b, t.Context(), steps.Claim("k"), driver.ErrClosed)
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
					c := steps.Claim(key)
					ticket, err := b.Enter(ctx, c)
					cancel()
					note := fmt.Sprintf("%s %02d %v granted %v error %v", key, i, time.Since(start), ticket.Granted, err)
					b.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
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
