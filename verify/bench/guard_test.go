package bench

import (
	"context"
	"testing"
	"time"
)

func TestGuardCountsWhatMustNotHappen(t *testing.T) {
	one, two := visitor{goroutine: 1}, visitor{goroutine: 2}
	var g guard
	g.enter(one, 5)
	g.leave(one)
	g.enter(two, 6)
	g.leave(two)
	if n := g.violations(); n != 0 {
		t.Errorf("one after the other, with tokens that rise: %v violations", n)
	}
	g.enter(one, 6)
	if n := g.violations(); n != 1 {
		t.Errorf("a token that does not rise: %v violations in all", n)
	}
	g.enter(two, 7)
	if n := g.violations(); n != 2 {
		t.Errorf("a second one inside: %v violations in all", n)
	}
}

// open is a lock that keeps nobody out.
type open struct{}

func (l *open) Do(_ context.Context, _ string, inside func(int64)) error {
	inside(1)
	return nil
}
func (l *open) Hold(context.Context, string) (Held, error) { return nil, errNever }
func (l *open) Close() error                               { return nil }

func TestCrowdSeesALockThatExcludesNobody(t *testing.T) {
	var g guard
	c := gather(&open{}, 8, func(int) (string, *guard) { return "k", &g })
	c.begin()
	for begun := time.Now(); g.violations() == 0 && time.Since(begun) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if err := c.halt(); err != nil {
		t.Fatal(err)
	}
	if g.violations() == 0 {
		t.Error("eight goroutines with one token and no lock broke nothing")
	}
}
