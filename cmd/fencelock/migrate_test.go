//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

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
