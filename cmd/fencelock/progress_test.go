//go:build unix

package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// stall are flags of commands that have to show progress, and are not scheduled for seconds on a busy machine.
var stall = []string{"--ttl", "15s", "--stall", "12s"}

// stalls runs a command without progress under the same flags, until it is ended for that:
// whatever else was without progress for as long has been ended, too.
func (s *stage) stalls() {
	s.t.Helper()
	s.wants(exitLost, slices.Concat([]string{"run"}, stall, []string{"--progress", "file:nothing", "m", "--", "sleep", "1000"})...)
}

// The command writes on into the file that it has opened, whatever becomes of its name. A file that each step replaces
// is progress, whatever the times of its contents.
func TestFileThatIsRotatedOrReplacedIsNoStall(t *testing.T) {
	const writes = "exec >>log; echo $$ >pid; until [ -e enough ]; do echo .; sleep 0.05; done; exit 3"
	move := func(s *stage) { must(t, os.Rename(s.path("log"), s.path("log.1"))) }
	for _, c := range []struct {
		name, command string
		rotate        func(s *stage) // when the command writes
		rare          bool           // only make verify does it
	}{
		{"moved, and made anew", writes, func(s *stage) { move(s); s.touch("log") }, false}, // as logrotate does
		{"cut to nothing", writes, func(s *stage) { must(t, os.Truncate(s.path("log"), 0)) }, false},
		{"moved away", writes, move, true},
		{"deleted", writes, func(s *stage) { must(t, os.Remove(s.path("log"))) }, true},
		{"moved to another file", writes, func(s *stage) { s.touch("log.1"); move(s) }, true},
		// With its first instruction, before anybody has looked at the file a second time.
		{"moved away by its writer", strings.Replace(writes, "; ", "; mv log log.1; ", 1), nil, false},
		{"replaced by each step", "echo $$ >pid; until [ -e enough ]; do " +
			"echo . >new; touch -d 2020-01-01 new; mv new log; sleep 0.05; done; exit 3", nil, false},
	} {
		if c.rare && !verifying {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			s.touch("log")
			holder, _ := s.runs(c.command, append(stall, "--progress", "file:log")...)
			if c.rotate != nil {
				eventually(t, "it writes", func() bool { return s.read("log") != "" })
				c.rotate(s)
			}
			s.stalls()
			s.stalls()
			s.touch("enough")
			holder.wantExit(3)
		})
	}
}

// A reader that pauses holds the command up. That is no stall.
func TestReaderOfTheOutputThatPausesIsNoStall(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	holder := s.command("fencelock", slices.Concat([]string{"run"}, stall, []string{"--progress", "stdout", "n", "--",
		"sh", "-c", "echo $$ >pid; head -c 1000000 /dev/zero; exit 3"})...)
	holder.cmd.Stdout = write
	holder.begin()
	must(t, write.Close())
	s.pid("pid")
	s.stalls()
	s.stalls()
	n, err := io.Copy(io.Discard, read)
	if n != 1000000 || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	holder.wantExit(3)
}
