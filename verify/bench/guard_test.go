package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestGuardCountsWhatMustNotHappen(t *testing.T) {
	one, two := visitor{goroutine: 1}, visitor{goroutine: 2}
	var g guard
	now := time.Now()
	g.enter(one, 5, now)
	g.leave(one)
	g.enter(two, 6, now)
	g.leave(two)
	if n := g.violations(); n != 0 {
		t.Errorf("one after the other, with tokens that rise: %v violations", n)
	}
	g.enter(one, 6, now)
	if n := g.violations(); n != 1 {
		t.Errorf("a token that does not rise: %v violations in all", n)
	}
	g.enter(two, 7, now)
	if n := g.violations(); n != 2 {
		t.Errorf("a second one inside: %v violations in all", n)
	}
}

func TestGuardMeasuresHandOversToWhoWaited(t *testing.T) {
	here, there := visitor{process: 1, goroutine: 1, clock: true}, visitor{process: 2, goroutine: 1, clock: true}
	var g guard
	before := time.Now().Add(-time.Second)
	g.enter(here, 1, before)
	g.leave(here)
	if d := g.enter(there, 2, before); d <= 0 || d > time.Minute {
		t.Errorf("to one who waited: %v", d)
	}
	g.leave(there)
	steps.Same(t, "to one who came later", g.enter(here, 3, time.Now().Add(time.Second)), 0)
}

func TestWorkersSeeALockThatExcludesNobody(t *testing.T) {
	open := &library[struct{}]{
		lock:   func(context.Context, string) (none struct{}, err error) { return none, nil },
		unlock: func(context.Context, string, struct{}) error { return nil },
		token:  func(struct{}) int64 { return 1 },
	}
	g := new(guard)
	ws := onOneKey(open, 8, "k", g)
	ws.start()
	testserver.Eventually(t, time.Minute, "two are inside at once", func() bool { return g.violations() > 0 })
	steps.Must(t, ws.stop())
	if ws.violations() == 0 {
		t.Error("eight goroutines with one token and no lock broke nothing")
	}
}

func TestReleaseSaysWhetherTheLockWasLost(t *testing.T) {
	for _, lost := range []error{nil, errors.New("lost")} {
		renewed := make(chan bool, 1)
		l := &library[int]{
			lock:   func(context.Context, string) (int, error) { return 7, nil },
			unlock: func(context.Context, string, int) error { return nil },
			ttl:    3 * time.Millisecond,
			extend: func(_ context.Context, held int) error {
				select {
				case renewed <- held == 7:
				default:
				}
				return lost
			},
		}
		held, err := l.Hold(t.Context(), "k")
		if err != nil || !<-renewed {
			t.Fatalf("it renews another lock: %v", err)
		}
		steps.Is(t, "released with", l.Release(t.Context(), held), lost)
	}
}
