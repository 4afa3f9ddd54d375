//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// holderOfN is who alone holds n, as show tells it.
func holderOfN(t *testing.T, s *stage) claimView {
	t.Helper()
	var v lineView
	if err := json.Unmarshal([]byte(s.must("show", "-o", "json", "n")), &v); err != nil || len(v.Holders) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	return v.Holders[0]
}

// token is the token of who holds n.
func token(t *testing.T, s *stage) string {
	t.Helper()
	return holderOfN(t, s).Token.String()
}

// traps starts a run with these flags that holds n. Its shell exits with 3 on HUP, and notes USR1.
func (s *stage) traps(flags ...string) *proc {
	s.t.Helper()
	const script = `trap "exit 3" HUP; trap "echo asked >asked" USR1; echo $$ >pid; ` + untilTold
	p := s.start("fencelock", slices.Concat([]string{"run"}, flags, []string{"n", "--", "sh", "-c", script})...)
	s.pid("pid")
	return p
}

func TestCommandThatIsAskedEndsByItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.traps("--on-revoke", "HUP")
		breaker := s.wants(0, "break", "n", "--yes", "--ask", "1m", "--reason", "release 7", "--token", token(t, s))
		breaker.wantLine(`"n": the grant with token `, " ended after ", ", without force")
		holder.wantExit(3)
		holder.wantLine(`"n": `, " asks for it (release 7); the command gets SIGHUP")
		if out := s.must("ls"); out != "" {
			t.Errorf("left in the store: %s", out)
		}
	})
}

func TestCommandThatDoesNotHeedIsBroken(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("told=%v", told), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *stage) {
				flags := []string{"--ttl", "3s"}
				if told {
					flags = append(flags, "--on-revoke", "SIGusr1")
				}
				holder := s.traps(flags...)
				breaker := s.start("fencelock", "break", "n", "--yes", "--ask", "2s", "--reason", "enough", "--token", token(t, s))
				if out := s.must("ls"); strings.Contains(out, "revoke") || !strings.HasPrefix(out, "NAME") {
					t.Errorf("the request is shown: %s", out)
				}
				breaker.wantExit(0)
				breaker.wantLine(" did not end in 2s, and was broken")
				holder.wantExit(exitLost)
				text := holder.err.String()
				if !strings.Contains(text, "enough") || strings.Contains(text, "asks for it") != told {
					t.Errorf("the holder says %s", text)
				}
				if asked := s.read("asked") != ""; asked != told {
					t.Errorf("the command was asked: %v", asked)
				}
			})
		})
	}
}

func TestInterruptedBreakTakesItsRequestBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.traps("--on-revoke", "USR1")
		breaker := s.start("fencelock", "break", "n", "--yes", "--ask", "1m", "--token", token(t, s))
		eventually(t, "the command is asked", func() bool { return s.read("asked") != "" })
		breaker.signal("INT")
		breaker.wantExit(130)
		breaker.wantLine("interrupted; the request was taken back, and nothing was broken")
		token(t, s) // it is held
		s.touch("enough")
		holder.wantExit(0)
	})
}

func TestBreakWithDelayKeepsTheNameClosed(t *testing.T) {
	t.Parallel()
	for _, asks := range [][]string{nil, {"--ask", "1s"}} {
		t.Run(fmt.Sprint(asks), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *stage) {
				holder := s.traps("--ttl", "3s")
				end := []string{"break", "n", "--yes", "--token", token(t, s)}
				s.wants(0, slices.Concat(end, asks, []string{"--delay", "1h"})...)
				holder.wantExit(exitLost)
				s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
				if out := s.must("ls"); !strings.Contains(out, "lingers") {
					t.Errorf("ls: %s", out)
				}
				s.wants(0, end...) // sent again
				s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
				s.wants(0, append(end, "--delay", "0")...)
				s.wants(0, "run", "-n", "n", "--", "true")
			})
		})
	}
}
