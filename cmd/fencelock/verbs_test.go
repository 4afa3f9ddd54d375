//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestSlotIsRunOnceHoweverManyTry(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		for round := range 5 {
			var all []*proc
			for range 4 {
				all = append(all, s.start("fencelock", "once", "job", "--slot", fmt.Sprintf("2026-11-20T2%d:00Z", round%4), "--",
					"sh", "-c", fmt.Sprintf("echo ran >>ran; [ -e tried%d ] || { : >tried%d; exit 4; }", round, round)))
			}
			codes := map[int]int{}
			for _, p := range all {
				codes[p.wait()]++
			}
			// The first one to come fails, which leaves the slot open for the second. The
			// last round is about a slot after which others were done.
			want, runs := map[int]int{4: 1, 0: 3}, 2*(round+1)
			if round == 4 {
				want, runs = map[int]int{exitNotAcquired: 4}, 2*4
			}
			if fmt.Sprint(codes) != fmt.Sprint(want) {
				t.Errorf("round %d: exit codes %v, want %v", round, codes, want)
			}
			if got := strings.Count(s.read("ran"), "ran"); got != runs {
				t.Errorf("round %d: %d runs so far, want %d", round, got, runs)
			}
		}
	})
}

func TestWatchShowsWhoComesAndGoes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stage) {
		text := s.start("fencelock", "watch", "n")
		lines := s.start("fencelock", "watch", "-o", "json")
		holder := s.holds(untilTold, "--note", "first")
		eventually(t, "the holder is shown", func() bool { return strings.Contains(text.out.String(), " holds (first), token ") })
		waiter := s.start("fencelock", "run", "n", "--", "sh", "-c", "until [ -e really ]; do sleep 0.02; done")
		eventually(t, "the waiter is shown", func() bool { return strings.Contains(text.out.String(), " waits, token ") })
		s.touch("enough")
		holder.wait()
		eventually(t, "the next holder is shown", func() bool { return strings.Contains(text.out.String(), " holds, token ") })
		s.touch("really")
		waiter.wait()
		eventually(t, "the end is shown", func() bool { return strings.Contains(text.out.String(), " left, token ") })
		eventually(t, "the end is shown as JSON", func() bool {
			return strings.Contains(lines.out.String(), `"holders":[],"waiters":[]`)
		})

		var last lineView
		for line := range strings.Lines(lines.out.String()) {
			var v lineView
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if sameView(v, last) {
				t.Errorf("nothing changed, and it was told: %q", line)
			}
			if v.Name != "n" || v.Kind != "lock" {
				t.Errorf("%q is about something else", line)
			}
			last = v
		}
	})
}
