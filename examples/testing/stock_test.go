package stock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// shelf is a Shelf in memory that takes its time.
type shelf struct {
	slow time.Duration
	mu   sync.Mutex
	n    int
	last fence.Token
}

var errStale = errors.New("a newer holder has written")

func (s *shelf) Get(ctx context.Context, _ string, token fence.Token) (int, error) {
	if s.slow > 0 {
		select {
		case <-time.After(s.slow):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.last {
		return 0, errStale
	}
	s.last = token
	return s.n, nil
}

func (s *shelf) Set(_ context.Context, _ string, n int, token fence.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.last {
		return errStale
	}
	s.n, s.last = n, token
	return nil
}

// Two programs are two Clients on one memlock.Store.
func TestTwoProgramsSellEachPieceOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memlock.New(), &shelf{n: 10, slow: time.Second}
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		defer a.Close()
		defer b.Close()
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() { _ = Take(t.Context(), []*fencelock.Client{a, b}[i%2], s, "pen", 1) })
		}
		all.Wait()
		if s.n != 0 {
			t.Errorf("%d pieces are left", s.n)
		}
	})
}

// The store is cut off while the work runs. Time is virtual: this takes no time.
func TestStoreThatGoesSilentStopsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty.New(memlock.New(), 1, faulty.Options{})
		locks := newClient(t, store, &fencelock.Options{TTL: 10 * time.Second})
		defer locks.Close()
		time.AfterFunc(time.Second, store.Pause) // nothing is answered from then on
		s := &shelf{n: 10, slow: time.Hour}

		begun := time.Now()
		err := Take(t.Context(), locks, s, "pen", 1)
		if !errors.Is(err, fencelock.ErrExpired) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it went on for %v without a lock", took)
		}
		if s.n != 10 {
			t.Error("it wrote without a lock")
		}
		store.Resume()
	})
}

// An operator breaks the lock.
func TestBrokenLockStopsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks, operator := newClient(t, store, nil), newClient(t, store, nil)
		defer locks.Close()
		defer operator.Close()
		time.AfterFunc(time.Minute, func() {
			line, err := operator.Line(t.Context(), "stock/pen")
			if err == nil {
				err = operator.Break(t.Context(), "stock/pen", fence.Token(line.Claims[0].Token), fencelock.Break{Reason: "stuck since noon"})
			}
			if err != nil {
				t.Error(err)
			}
		})
		err := Take(t.Context(), locks, &shelf{n: 10, slow: time.Hour}, "pen", 1)
		if !errors.Is(err, fencelock.ErrBroken) {
			t.Errorf("the error is %v", err)
		}
	})
}

// A holder that was paused wakes up late and writes: the shelf refuses it.
func TestLateWriteIsRefused(t *testing.T) {
	ctx := t.Context()
	store, s := memlock.New(), &shelf{n: 10}
	locks := newClient(t, store, nil)
	defer locks.Close()
	paused, err := locks.Lock(ctx, "stock/pen")
	if err != nil {
		t.Fatal(err)
	}
	store.Flush() // the store forgets it, as when its lease has run out
	other := newClient(t, store, nil)
	defer other.Close()
	next, err := other.Lock(ctx, "stock/pen")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "pen", next.Token()); err != nil { // and has written nothing yet
		t.Fatal(err)
	}
	if err := s.Set(ctx, "pen", 9, paused.Token()); !errors.Is(err, errStale) {
		t.Errorf("the late write was answered %v", err)
	}
}

// The store forgets the lock, as a Redis that was emptied does. The next renewal says so.
func TestForgottenLockStopsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		locks := newClient(t, store, nil)
		defer locks.Close()
		time.AfterFunc(time.Minute, store.Flush)
		begun := time.Now()
		err := Take(t.Context(), locks, &shelf{n: 10, slow: time.Hour}, "pen", 1)
		if !errors.Is(err, fencelock.ErrBroken) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took > time.Minute+fencelock.DefaultTTL {
			t.Errorf("it went on for %v", took)
		}
	})
}

// A request takes effect, and its answer is lost: the work is done once all the same.
func TestLostAnswerIsADelay(t *testing.T) {
	for _, m := range []faulty.Method{faulty.Enter, faulty.Leave} {
		synctest.Test(t, func(t *testing.T) {
			store := faulty.New(memlock.New(), 1, faulty.Options{})
			locks := newClient(t, store, nil)
			defer locks.Close()
			store.Next(m, faulty.Fault{Lose: true})
			s := &shelf{n: 10}
			for range 2 { // the second finds nothing in its way
				if err := Take(t.Context(), locks, s, "pen", 1); err != nil {
					t.Errorf("the answer to %v was lost: %v", m, err)
				}
			}
			if s.n != 8 {
				t.Errorf("the answer to %v was lost: %d pieces are left, of 10 less 2", m, s.n)
			}
		})
	}
}

func newClient(t *testing.T, b driver.Backend, o *fencelock.Options) *fencelock.Client {
	t.Helper()
	c, err := fencelock.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
