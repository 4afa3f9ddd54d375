//go:build unix

package main

import (
	"io"
	"os"
	"testing"
)

// stalls runs a command without progress under the same flags, until it is ended for that:
// whatever else was without progress for as long has been ended, too.
func (s *stage) stalls(flags ...string) {
	s.t.Helper()
	s.wants(exitLost, append(append([]string{"run"}, flags...), "--progress", "file:nothing", "--", "sleep", "100")...)
}

// The command writes on into the file that it has opened, whatever becomes of its name.
func TestLogThatIsRotatedIsNoStall(t *testing.T) {
	for name, rotate := range map[string]func(s *stage){
		"moved away":            func(s *stage) { must(t, os.Rename(s.path("log"), s.path("log.1"))) },
		"deleted":               func(s *stage) { must(t, os.Remove(s.path("log"))) },
		"moved, and made anew":  func(s *stage) { must(t, os.Rename(s.path("log"), s.path("log.1"))); s.touch("log") },
		"moved to another file": func(s *stage) { s.touch("log.1"); must(t, os.Rename(s.path("log"), s.path("log.1"))) },
		"cut to nothing":        func(s *stage) { must(t, os.Truncate(s.path("log"), 0)) },
	} {
		if !verifying && name != "moved, and made anew" && name != "cut to nothing" {
			continue // as these, which logrotate does
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			s.touch("log")
			flags := []string{"--ttl", "5s", "--stall", "4s"}
			holder := s.start("fencelock", append(append([]string{"run"}, flags...), "--progress", "file:log", "n", "--",
				"sh", "-c", "exec >>log; echo $$ >pid; until [ -e enough ]; do echo .; sleep 0.05; done; exit 3")...)
			s.pid("pid")
			eventually(t, "it writes", func() bool { return s.read("log") != "" })
			rotate(s)
			s.stalls(append(flags, "m")...)
			s.stalls(append(flags, "m")...)
			s.touch("enough")
			holder.wantExit(3)
		})
	}
}

// A command may move its log away with its first instruction, before anybody has looked at it
// a second time.
func TestLogThatIsRotatedByItsWriterIsNoStall(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.touch("log")
	flags := []string{"--ttl", "5s", "--stall", "4s"}
	holder := s.start("fencelock", append(append([]string{"run"}, flags...), "--progress", "file:log", "n", "--",
		"sh", "-c", "exec >>log; mv log log.1; echo $$ >pid; until [ -e enough ]; do echo .; sleep 0.05; done; exit 3")...)
	s.pid("pid")
	s.stalls(append(flags, "m")...)
	s.touch("enough")
	holder.wantExit(3)
}

// A file that is replaced by each step is progress, whatever the times of its contents.
func TestFileThatIsReplacedIsProgress(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	flags := []string{"--ttl", "5s", "--stall", "4s"}
	holder := s.start("fencelock", append(append([]string{"run"}, flags...), "--progress", "file:state", "n", "--",
		"sh", "-c", "echo $$ >pid; until [ -e enough ]; do echo . >new; touch -d 2020-01-01 new; mv new state; sleep 0.05; done; exit 3")...)
	s.pid("pid")
	s.stalls(append(flags, "m")...)
	s.stalls(append(flags, "m")...)
	s.touch("enough")
	holder.wantExit(3)
}

// A reader that pauses holds the command up. That is no stall.
func TestReaderOfTheOutputThatPausesIsNoStall(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	flags := []string{"--ttl", "5s", "--stall", "4s"}
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	holder := s.command("fencelock", append(append([]string{"run"}, flags...), "--progress", "stdout", "n", "--",
		"sh", "-c", "echo $$ >pid; head -c 1000000 /dev/zero; exit 3")...)
	holder.cmd.Stdout = write
	holder.begin()
	must(t, write.Close())
	s.pid("pid")
	s.stalls(append(flags, "m")...)
	s.stalls(append(flags, "m")...)
	n, err := io.Copy(io.Discard, read)
	if n != 1000000 || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	holder.wantExit(3)
}
