//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// holderOfN is who alone holds n, as show tells it.
func holderOfN(s *stage) claimView {
	s.t.Helper()
	var v lineView
	if err := json.Unmarshal([]byte(s.must("show", "-o", "json", "n")), &v); err != nil || len(v.Holders) != 1 {
		s.t.Fatalf("%+v, %v", v, err)
	}
	return v.Holders[0]
}

// token is the token of who holds n.
func token(s *stage) string {
	s.t.Helper()
	return holderOfN(s).Token.String()
}

// traps starts a run with these flags that holds n. Its shell exits with 3 on HUP, with 4 on TERM, and notes USR1.
func (s *stage) traps(flags ...string) *proc {
	s.t.Helper()
	const script = `trap "exit 3" HUP; trap "exit 4" TERM; trap "echo asked >asked" USR1; echo $$ >pid; ` + untilTold
	p, _ := s.runs(script, flags...)
	return p
}

func TestCommandUnderNoticeEndsByItself(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"", "HUP"} {
		t.Run("signal="+signal, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *stage) {
				flags := []string{"--ttl", "15s"} // it hears by a renewal, if it has no alarms yet
				if signal != "" {
					flags = append(flags, "--on-revoke", signal)
				}
				holder := s.traps(flags...)
				breaker := s.wants(0, "break", "n", "--yes", "--notice", "10m", "--reason", "release 7", "--token", token(s))
				breaker.wantLine(`"n": the grant with token `, " ends in 10m00s, or sooner if its holder releases it")
				holder.wantExit(map[string]int{"": 4, "HUP": 3}[signal])
				holder.wantLine(`"n" will be broken in `, " (release 7); the command gets SIG"+cmp.Or(signal, "TERM"))
				steps.Same(t, "left in the store", s.must("ls"), "")
			})
		})
	}
}

func TestCommandThatDoesNotHeedItsNoticeIsEnded(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--on-revoke", "SIGusr1"}, {"--on-loss", "kill", "--on-revoke", "USR1"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *stage) {
				holder := s.traps(append(flags, "--ttl", "15s", "--grace", "1s")...)
				s.wants(0, "break", "n", "--yes", "--notice", "20s", "--reason", "enough", "--token", token(s))
				holder.wantExit(exitLost)
				if s.read("asked") == "" {
					t.Error("the command was not told")
				}
				if text := holder.err.String(); !strings.Contains(text, "was lost while the command ran") ||
					strings.Count(text, "enough") != 2 {
					t.Errorf("the holder says %s", text)
				}
				s.wants(0, "run", "n", "--", "true")
			})
		})
	}
}

func TestCommandThatIgnoresLossRunsOnUnderNotice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.traps("--on-loss", "ignore", "--ttl", "15s")
		s.wants(0, "break", "n", "--yes", "--notice", "1h", "--token", token(s))
		holder.says("the command runs on")
		s.touch("enough")
		holder.wantExit(0)
	})
}

func TestNoticeIsShownToOtherOperatorsAndToWhoRenews(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		s.must("acquire", "n", "--ttl", "10m", "--handle", "h")
		s.wants(0, "break", "n", "--yes", "--notice", "10m", "--reason", "release 7", "--token", token(s))
		for args, want := range map[string]string{
			"ls":             `(?m)^n +ends `,
			"show n":         `(?m)^notice: the grant of .* ends in (10m|9m\d\d)[^:]*: release 7$`,
			"show n -o json": `"notice": "release 7"`,
		} {
			if out := s.must(strings.Fields(args)...); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s has no %s:\n%s", args, want, out)
			}
		}
		renewed := s.wants(0, "renew", "--handle", "h")
		renewed.wantLine(`"n" will be broken in `, "(release 7); finish the work and release it")
		s.wants(0, "release", "--handle", "h")
	})
}

func TestBreakWithDelayKeepsTheNameClosed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		holder := s.traps("--ttl", "15s")
		end := []string{"break", "n", "--yes", "--token", token(s)}
		s.wants(0, append(end, "--delay", "1h")...)
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
}
