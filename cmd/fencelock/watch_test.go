//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testserver"
)

// At a hand-over the first holder leaves before the next one holds, as in the line.
func TestWatchTellsOfLeavingFirst(t *testing.T) {
	t.Parallel()
	line := func(holder fencelock.Standing, waiters ...fencelock.Standing) fencelock.Line {
		holder.Granted = true
		return fencelock.Line{Key: "n", Claims: append([]fencelock.Standing{holder}, waiters...)}
	}
	a, b, c, d := fencelock.Standing{Owner: "a", Token: 1}, fencelock.Standing{Owner: "b", Token: 2},
		fencelock.Standing{Owner: "c", Token: 3}, fencelock.Standing{Owner: "d", Token: 4}
	before, now := line(a, b, c), line(b, c, d)
	var out strings.Builder
	must(t, printChanges(&out, before, now, false))
	var told []string
	for line := range strings.Lines(out.String()) {
		told = append(told, strings.TrimSpace(strings.SplitN(line, "  ", 3)[2]))
	}
	want := "a left, token 1; b holds, token 2; d waits, token 4"
	if got := strings.Join(told, "; "); got != want {
		t.Errorf("it told %q, want %q", got, want)
	}
}

func TestWatchRidesOutAnOutage(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newStage(t, server.URL())
	p := s.start("fencelock", "watch")
	s.holds(longRun)
	eventually(t, "it shows the holder", func() bool { return strings.Contains(p.out.String(), " holds, token ") })
	must(t, server.Kill())
	p.says("; watching goes on when it answers\n")
	must(t, server.Restart())
	p.says(" answers again; ")
}

// A store that is down as the waiting begins is asked again, within -w.
func TestWaitRidesOutAnOutageAtItsBeginning(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newStage(t, server.URL())
	must(t, server.Kill())
	waiters := []*proc{
		s.start("fencelock", "run", "-w", "600", "n", "--", "true"),
		s.start("fencelock", "wait", "-w", "600", "n"),
	}
	for _, p := range waiters {
		p.says("; asking again for ")
	}
	must(t, server.Restart())
	for _, p := range waiters {
		p.wantExit(0)
	}
	must(t, server.Kill())
	began := time.Now()
	p := s.start("fencelock", "run", "-w", "3", "n", "--", "true")
	p.wantExit(exitUnavailable)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it gave up after %v, want 3 s", took)
	}
	if text := p.err.String(); !slices.Contains([]int{1, 2}, strings.Count(text, "connection refused")) {
		t.Errorf("want one line that asks again at most, and the last line, both with the cause:\n%s", text)
	}
}
