package doctor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

// TestRaceHasOneWinner: in a store that excludes, one racer wins each round, and nothing stays in line.
func TestRaceHasOneWinner(t *testing.T) {
	b := memlock.New()
	o, err := doctor.Race(t.Context(), []driver.Backend{b}, 32, 50)
	if err != nil || !o.Excludes() || o.One != 50 || o.Most != 1 || o.Unanswered > 0 {
		t.Errorf("Race counted %+v, %v; want one winner in each of 50 rounds", o, err)
	}
	for line, err := range b.Lines(t.Context(), "") {
		t.Errorf("Race left %+v, %v in the store", line, err)
	}
}

// lawless is a store that accepts the condition of a claim and does not apply it.
type lawless struct {
	driver.Backend
	every int64 // grants each so manieth claim
	token func(n int64) int64
	n     atomic.Int64
}

func (l *lawless) Enter(_ context.Context, c driver.Claim) (driver.Ticket, error) {
	n := l.n.Add(1)
	if n%l.every != 0 {
		return driver.Ticket{}, &driver.BusyError{}
	}
	return driver.Ticket{Claim: c, Token: l.token(n), Granted: true, Left: c.TTL}, nil
}

func (l *lawless) Leave(context.Context, driver.Ticket, driver.Exit) error { return nil }

// TestRaceFindsAStoreThatDoesNotExclude: more winners than one, a token that comes again, nobody ever.
func TestRaceFindsAStoreThatDoesNotExclude(t *testing.T) {
	rising := func(n int64) int64 { return n }
	tests := map[string]struct {
		every int64
		token func(n int64) int64
		want  doctor.Outcome
	}{
		"all win":          {1, rising, doctor.Outcome{Racers: 8, Rounds: 4, Several: 4, Most: 8}},
		"two of eight win": {4, rising, doctor.Outcome{Racers: 8, Rounds: 4, Several: 4, Most: 2}},
		"a token does not rise": {8, func(n int64) int64 { return max(n, 16) },
			doctor.Outcome{Racers: 8, Rounds: 4, One: 4, Most: 1, NotRisen: 1}},
		"nobody wins": {1000, rising, doctor.Outcome{Racers: 8, Rounds: 4, None: 4}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := &lawless{Backend: memlock.New(), every: test.every, token: test.token}
			o, err := doctor.Race(t.Context(), []driver.Backend{b}, 8, 4)
			if err != nil || o != test.want {
				t.Errorf("Race counted %+v, %v; want %+v", o, err, test.want)
			}
			if o.Excludes() {
				t.Errorf("a store that does not exclude passed: %+v", o)
			}
		})
	}
}

// mute is a store that does not answer.
type mute struct {
	driver.Backend
	wait func(context.Context) error
}

func (m *mute) Enter(ctx context.Context, _ driver.Claim) (driver.Ticket, error) {
	return driver.Ticket{}, m.wait(ctx)
}

func (m *mute) Leave(context.Context, driver.Ticket, driver.Exit) error {
	return errors.New("no answer")
}

// TestRaceWithoutAnswers: a store that is down excludes nobody and proves nothing.
func TestRaceWithoutAnswers(t *testing.T) {
	down := errors.New("connection refused")
	silent := &mute{memlock.New(), func(context.Context) error { return down }}
	o, err := doctor.Race(t.Context(), []driver.Backend{silent}, 4, 2)
	if err != nil || o.Unanswered != 8 || !errors.Is(o.Err, down) || o.None != 2 || o.Excludes() {
		t.Errorf("Race counted %+v, %v; want 8 requests without an answer", o, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	hung := &mute{memlock.New(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	steps.Is(t, "Race", steps.ErrOf(doctor.Race(ctx, []driver.Backend{hung}, 4, 2)), context.DeadlineExceeded)
}

func TestRaceRefusesNumbers(t *testing.T) {
	for _, n := range [][2]int{{1, 1}, {1001, 1}, {2, 0}} {
		if _, err := doctor.Race(t.Context(), []driver.Backend{memlock.New()}, n[0], n[1]); err == nil {
			t.Errorf("Race accepted %d racers and %d rounds", n[0], n[1])
		}
	}
	if _, err := doctor.Race(t.Context(), nil, 2, 1); err == nil {
		t.Error("Race accepted no backends")
	}
}
