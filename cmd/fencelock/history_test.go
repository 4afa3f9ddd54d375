//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// history is what the store remembers of name, the oldest first.
func (s *stage) history(name string) (grants []grantView) {
	s.t.Helper()
	must(s.t, json.Unmarshal([]byte(s.must("history", name, "-o", "json", "-n", "1000")), &grants))
	slices.Reverse(grants)
	return grants
}

// Three processes at a time take one name. The store remembers each of their grants, in order.
func TestHistoryIsWhole(t *testing.T) {
	t.Parallel()
	const rounds = 5
	onEach(t, func(t *testing.T, s *stage) {
		var shells []*proc
		for i := range 3 {
			script := fmt.Sprintf("for i in $(seq %d); do fencelock run --history n --note %d -- true || exit; done", rounds, i)
			shells = append(shells, s.start("sh", "-c", script))
		}
		for _, p := range shells {
			p.wantExit(0)
		}
		grants, notes := s.history("n"), map[string]int{}
		for i, g := range grants {
			notes[g.Note]++
			if g.End != "released" || g.Owner == "" || g.Asked.After(g.Granted) || g.Granted.After(g.Ended) {
				t.Errorf("grant %d is %+v", i, g)
			}
			if before := grants[max(i-1, 0)]; i > 0 && (before.Token >= g.Token || before.Ended.After(g.Granted)) {
				t.Errorf("grant %d with token %v began at %v, before that with token %v ended at %v",
					i, g.Token, g.Granted, before.Token, before.Ended)
			}
		}
		for i := range 3 {
			if n := notes[fmt.Sprint(i)]; n != rounds {
				t.Errorf("%d grants of process %d are remembered, of %d", n, i, rounds)
			}
		}
	})
}

// A holder that hangs is broken, and the next one is killed.
func TestHistorySaysHowAHoldingEnded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		s.env = append(s.env, envHistory+"=1") // of the command that breaks it, too
		holder := s.holds(longRun, "--note", "nightly")
		eventually(t, "the history has the holder", func() bool { return len(s.history("n")) == 1 })
		if text := s.must("history", "n"); !strings.Contains(text, "still held") {
			t.Errorf("of a holder it says\n%s", text)
		}
		s.must("break", "n", "--token", s.history("n")[0].Token.String(), "--yes", "--reason", "it hung")
		holder.wantExit(exitLost)
		text := s.must("history", "n")
		if g := s.history("n")[0]; g.End != "broken" || g.BrokenBy == "" || g.Reason != "it hung" || g.Held ||
			!strings.Contains(text, "broken by "+g.BrokenBy+": it hung") || !strings.HasSuffix(text, "nightly\n") {
			t.Errorf("of a broken holder it says %+v\n%s", g, text)
		}

		p := s.holds(longRun, "--ttl", "10")
		eventually(t, "the history has the next holder", func() bool { return len(s.history("n")) == 2 })
		p.signal("KILL")
		eventually(t, "the lease is over", func() bool { return !s.history("n")[1].Held })
		text = s.must("history", "n", "-n", "1")
		if g := s.history("n")[1]; g.End != "" || !g.Ended.IsZero() || !strings.Contains(text, "no end was written") {
			t.Errorf("of a killed holder it says %+v\n%s", g, text)
		}
	})
}

// Without a setting nothing is written. A file, a variable or the flag is the setting.
func TestHistoryIsWrittenWhenAsked(t *testing.T) {
	s := sqliteStage(t)
	s.must("run", "off", "--", "true")
	if g := s.history("off"); len(g) != 0 {
		t.Errorf("a history that nobody wants has %+v", g)
	}
	s.wants(0, "history", "off").wantLine(`"off" has no history`, "FENCELOCK_HISTORY=1")
	s.write("fencelock.toml", "url = "+fmt.Sprintf("%q", s.url)+"\nhistory = true\n")
	for _, line := range []string{
		"FENCELOCK_URL= fencelock run n -- true",
		"FENCELOCK_HISTORY=true fencelock run n -- true",
		"fencelock once --history n --slot hour -- true",
		"fencelock acquire n --history --handle h && fencelock release --history --handle h",
	} {
		before := len(s.history("n"))
		if code, p := s.run("sh", "-c", line); code != 0 {
			t.Fatalf("%s: %d\n%s", line, code, p.err.String())
		}
		eventually(t, "the history has "+line, func() bool {
			g := s.history("n")
			return len(g) == before+1 && g[before].End == "released"
		})
	}
	if text := s.must("config"); strings.Contains(text, "history") {
		t.Errorf("the file is not in use, and config says\n%s", text)
	}
	t.Setenv(envHistory, "1")
	if text := s.must("config"); !strings.Contains(text, "history  on") {
		t.Errorf("config says\n%s", text)
	}
	t.Setenv(envHistory, "perhaps")
	s.wants(exitConfig, "run", "n", "--", "touch", "ran").wantLine(`FENCELOCK_HISTORY is "perhaps": want 1 or 0`)
}

// What cannot be written is told, and keeps nobody from the lock, nor from the end.
func TestHistoryThatCannotBeWrittenIsTold(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	_, err := server.Ask("ACL", "SETUSER", "default", "-xadd")
	must(t, err)
	newStage(t, server.URL()).wants(0, "run", "--history", "n", "--", "true").wantLine("the history cannot be written")
}
