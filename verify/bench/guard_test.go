package bench

import (
	"context"
	"testing"
	"time"
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
	if _, d := g.enter(there, 2, before); d <= 0 || d > time.Minute {
		t.Errorf("to one who waited: %v", d)
	}
	g.leave(there)
	if _, d := g.enter(here, 3, time.Now().Add(time.Second)); d != 0 {
		t.Errorf("to one who came later: %v", d)
	}
}

// open is a lock that keeps nobody out.
type open struct{}

func (open) Do(_ context.Context, _ string, inside func(int64)) error {
	inside(1)
	return nil
}
func (open) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (open) Close() error                               { return nil }

func TestWorkersSeeALockThatExcludesNobody(t *testing.T) {
	g := new(guard)
	ws := newWorkers(open{}, 8, func(int) (string, *guard) { return "k", g })
	ws.shared = true
	ws.start()
	for begun := time.Now(); g.violations() == 0 && time.Since(begun) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if _, err := ws.stop(); err != nil {
		t.Fatal(err)
	}
	if ws.violations() == 0 {
		t.Error("eight goroutines with one token and no lock broke nothing")
	}
}
