//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

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
		p := s.start("fencelock", "run", "n", "--url", urls[phase], "--", "sh", "-c", "echo $$ >"+phase+"; exec sleep 1000")
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
	both := s.start("fencelock", "run", "n", "--url", urls["both"], "--", "sh", "-c", "echo $$ >both; exec sleep 1000")
	eventually(t, "it waits", func() bool { return strings.Contains(migrate(0), "stage: old+both") })
	if got := migrate(exitNotAcquired, "new"); !strings.Contains(got, "do not deploy new yet: ") {
		t.Error(got)
	}
	old.signal("TERM")
	old.wait()
	s.pid("both")
	shows(0, "both", "new", "-w", "600")
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
	s.start("fencelock", "run", "other", "--url", urls["old"], "--", "sh", "-c", "echo $$ >straggler; exec sleep 1000")
	s.pid("straggler")
	if got := migrate(exitNotAcquired, "both"); !strings.Contains(got, "do not exclude one another") {
		t.Error(got)
	}
	s.wants(exitUsage, "migrate", "new")
	s.wants(exitUsage, "migrate", "both", "--from", urls["old"], "--to", "zk://127.0.0.1:1") // without a request
	s.wants(exitUsage, "migrate", "sideways", "--from", urls["old"], "--to", urls["new"])
}

// A server that accepts and says nothing takes no more of one's time than the first contact may, or than -w allows, or
// until a signal comes.
func TestSilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t) // stopped, so that it takes connections and says nothing
	must(t, server.Pause())
	t.Cleanup(func() { _ = server.Continue() })
	s := newStage(t, server.URL())
	var all []*proc
	for _, line := range []string{
		"run n -- touch ran", "run -w 1 --report r n -- touch ran", "once -w 0.1 n --slot hour -- touch ran", "wait -w 1 n",
	} {
		all = append(all, s.start("fencelock", strings.Fields(line)...))
	}
	for _, p := range all {
		p.wantExit(exitUnavailable)
		p.wantLine(server.Addr(), "does not answer", "no answer in time")
	}
	steps.Same(t, "the command ran", s.read("ran"), "")
	var r report
	must(t, json.Unmarshal([]byte(s.read("r")), &r))
	if took := r.Ended.Sub(r.Asked); took >= firstContact {
		t.Errorf("run -w 1 took %v", took)
	}
	// It listens for signals before it connects. Without one it would wait for minutes.
	p := s.start("fencelock", "run", "-w", "10m", "n", "--", "true")
	eventually(t, "it is connected", func() bool { return connected(server.Addr()) })
	p.signal("TERM")
	p.wantExit(128 + 15)
}

// connected reports whether anybody has a connection to addr.
func connected(addr string) bool {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	table, _ := os.ReadFile("/proc/net/tcp")
	return strings.Contains(string(table), fmt.Sprintf(" 0100007F:%04X 01 ", n))
}

// A Redis that may delete locks is warned of, unless -q.
func TestEvictingRedisIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	_, err := server.Ask("CONFIG", "SET", "maxmemory", "100mb")
	must(t, err)
	s := newStage(t, server.URL())
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		_, err := server.Ask("CONFIG", "SET", "maxmemory-policy", policy)
		must(t, err)
		for _, quiet := range []string{"-q", "-E75"} {
			p := s.wants(0, "run", quiet, "n", "--", "true")
			want := policy != "noeviction" && quiet != "-q"
			if got := strings.Contains(p.err.String(), "maxmemory-policy "+policy); got != want {
				t.Errorf("%s, %s: it says %q", policy, quiet, p.err.String())
			}
		}
	}
}
