//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
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

// An operator moves a fleet from one file to another and back, and asks before each deployment.
func TestMigrateRefusesTheNextPhaseWhileTheOneBeforeRuns(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	urls := map[string]string{"old": "sqlite://" + s.path("old.db"), "new": "sqlite://" + s.path("new.db")}
	urls["both"] = "bridge:" + urls["old"] + "," + urls["new"]
	run := func(phase string) *proc {
		p := s.start("fencelock", "run", "n", "--url", urls[phase], "--", "sh", "-c", "echo $$ >"+phase+"; exec sleep 100")
		s.pid(phase)
		return p
	}
	migrate := func(code int, args ...string) string {
		p := s.wants(code, append([]string{"migrate", "--for", "0.1", "--from", urls["old"], "--to", urls["new"]}, args...)...)
		return p.out.String() + p.err.String()
	}
	shows := func(code int, stage string, args ...string) {
		t.Helper()
		if got := migrate(code, args...); !strings.Contains(got, "stage: "+stage+"\n") {
			t.Errorf("migrate %s: %s; want the stage %s", args, got, stage)
		}
	}
	s.wants(exitUsage, "migrate", "--from", "redis://127.0.0.1?format=setnx", "--to", urls["new"]).
		wantLine("does not see programs of another library (setnx)")
	shows(0, "none")
	old := run("old")
	shows(0, "old")
	shows(0, "old", "both")
	shows(exitNotAcquired, "old", "new")
	both := s.start("fencelock", "run", "n", "--url", urls["both"], "--", "sh", "-c", "echo $$ >both; exec sleep 100")
	for !strings.Contains(migrate(0), "stage: old+both") { // until it waits
	}
	if got := migrate(exitNotAcquired, "new"); !strings.Contains(got, "do not deploy new yet: ") {
		t.Error(got)
	}
	old.signal("TERM")
	old.wait()
	s.pid("both")
	shows(0, "both", "new", "-w", "60")
	shows(0, "both", "old")
	var view moveView
	must(t, json.Unmarshal([]byte(migrate(0, "-o", "json")), &view))
	if len(view.Programs) != 1 || view.Programs[0].Phase != "both" || view.Programs[0].Holds != 1 || view.Crash == "" {
		t.Errorf("got %+v", view)
	}
	both.signal("TERM")
	both.wait()
	run("new")
	shows(0, "new")
	shows(exitNotAcquired, "new", "old")
	shows(0, "new", "both")
	s.start("fencelock", "run", "other", "--url", urls["old"], "--", "sh", "-c", "echo $$ >straggler; exec sleep 100")
	s.pid("straggler")
	if got := migrate(exitNotAcquired, "both"); !strings.Contains(got, "do not exclude one another") {
		t.Error(got)
	}
	s.wants(exitUsage, "migrate", "new")
	s.wants(exitUsage, "migrate", "both", "--from", urls["old"], "--to", "zk://127.0.0.1:1") // without a request
	s.wants(exitUsage, "migrate", "sideways", "--from", urls["old"], "--to", urls["new"])
}

// silentServer takes connections and says nothing: it is stopped.
func silentServer(t *testing.T) (*testserver.Server, *stage) {
	t.Helper()
	server := testserver.Redis(t)
	must(t, server.Pause())
	t.Cleanup(func() { _ = server.Continue() })
	return server, newStage(t, server.URL())
}

func TestUnreachableServerIsToldSoon(t *testing.T) {
	t.Parallel()
	server, s := silentServer(t)
	begun := time.Now()
	code, p := s.run("fencelock", "run", "n", "--", "touch", "ran")
	if code != exitUnavailable || time.Since(begun) > 2*firstContact {
		t.Errorf("exit %d after %v", code, time.Since(begun))
	}
	p.wantLine(server.Addr(), "no answer in time")
	steps.Same(t, "the command ran", s.read("ran"), "")
}

func TestSignalEndsTheFirstContact(t *testing.T) {
	t.Parallel()
	server, s := silentServer(t)
	p := s.start("fencelock", "run", "n", "--", "true")
	// It listens for signals before it connects.
	eventually(t, "it is connected", func() bool { return connected(server.Addr()) })
	p.signal("TERM")
	begun := time.Now()
	if code := p.wait(); code != 143 || time.Since(begun) > firstContact/2 {
		t.Errorf("exit %d after %v, want 143 at once: %s", code, time.Since(begun), p.err.String())
	}
}

// connected reports whether anybody has a connection to addr.
func connected(addr string) bool {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	table, _ := os.ReadFile("/proc/net/tcp")
	return strings.Contains(string(table), fmt.Sprintf(" 0100007F:%04X 01 ", n))
}

// A server that accepts and says nothing takes no more of one's time than -w allows.
func TestWaitCoversTheFirstContact(t *testing.T) {
	t.Parallel()
	_, s := silentServer(t)
	for _, args := range [][]string{
		{"run", "-w", "1", "n", "--", "true"},
		{"once", "-w", "0.1", "n", "--slot", "hour", "--", "true"},
		{"wait", "-w", "1", "n"},
	} {
		began := time.Now()
		p := s.wants(exitUnavailable, args...)
		p.wantLine("does not answer")
		if took := time.Since(began); took >= firstContact {
			t.Errorf("%v took %v", args, took)
		}
	}
}

// A Redis that may delete locks is warned of, unless -q, and is an error to doctor.
func TestEvictingRedisIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	s := newStage(t, server.URL())
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		must(t, rdb.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		must(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		for _, quiet := range []string{"-q", "-E75"} {
			_, p := s.run("fencelock", "run", quiet, "n", "--", "true")
			want := policy != "noeviction" && quiet != "-q"
			if got := strings.Contains(p.err.String(), "maxmemory-policy "+policy); got != want {
				t.Errorf("%s, %s: it says %q", policy, quiet, p.err.String())
			}
		}
	}
	p := s.wants(exitConfig, "doctor")
	if text := p.out.String(); !strings.Contains(text, "error     redis-eviction") {
		t.Errorf("doctor says %q", text)
	}
}
