package line_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/line"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a step that long after the start.
func at(d time.Duration) *line.Step { return &line.Step{Wall: start.Add(d), Mono: d} }

func wish(id string, weight int64) driver.Claim {
	return driver.Claim{
		Key: "k", ID: id, Owner: "test", Capacity: driver.RW, Weight: weight, TTL: time.Minute, Span: 1,
	}
}

// told lists the news of a step.
func told(s *line.Step) (news []string) {
	for _, n := range s.News {
		news = append(news, fmt.Sprint(n.Claim.ID, " ", n.Granted))
	}
	return news
}

func enter(t *testing.T, l *line.Line, s *line.Step, c driver.Claim) *line.Claim {
	t.Helper()
	got, err := l.Enter(s, c)
	steps.Must(t, err)
	return got
}

func TestStepSaysWhomItConcerns(t *testing.T) {
	var l line.Line
	enter(t, &l, at(0), wish("writer", driver.RW))
	enter(t, &l, at(1), wish("reader 1", 1))
	enter(t, &l, at(2), wish("reader 2", 1))
	enter(t, &l, at(3), wish("last", driver.RW))
	leave := func(s *line.Step, id string, e driver.Exit) []string {
		t.Helper()
		steps.Must(t, l.Leave(s, &driver.Ticket{Claim: wish(id, 1)}, e))
		return told(s)
	}
	for _, tt := range []struct {
		what string
		got  []string
		want []string
	}{
		{"a linger", leave(at(time.Second), "writer", driver.Exit{Linger: time.Second}), []string{"writer false", "reader 1 false"}},
		{"its end", func() []string { s := at(2 * time.Second); l.Purge(s); return told(s) }(),
			[]string{"writer false", "reader 1 true", "reader 2 true"}},
		{"a reader leaves", leave(at(3*time.Second), "reader 1", driver.Exit{}), []string{"reader 1 false"}},
		{"the last reader leaves", leave(at(4*time.Second), "reader 2", driver.Exit{}), []string{"reader 2 false", "last true"}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s told %q; want %q", tt.what, tt.got, tt.want)
		}
	}
}

func TestBlankAndIdle(t *testing.T) {
	var l line.Line
	steps.Same(t, "a new line is blank", l.Blank(), true)
	steps.Gone(t, "the Leave", l.Leave(at(0), &driver.Ticket{Claim: wish("late", 1)}, driver.Exit{Tombstone: true}))
	if l.Blank() || l.Idle(at(time.Second)) {
		t.Error("a line with a tombstone is as good as new")
	}
	steps.Same(t, "a line whose tombstone is over is idle", l.Idle(at(2*time.Minute)), true)
	enter(t, &l, at(3*time.Minute), wish("holder", 1))
	steps.Same(t, "a line with a holder is idle", l.Idle(at(3*time.Minute)), false)
	if l.Idle(at(23*time.Hour)) || !l.Idle(at(25*time.Hour)) {
		t.Error("a line is not remembered for a day after its last token")
	}
}
