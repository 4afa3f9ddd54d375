//go:build verify && linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each way out of the process group meets each way in which a lock ends. The next holder
// must find nothing that writes.
func TestNextHolderFindsNoWriterThatLeftTheGroup(t *testing.T) {
	ends := map[string]func(holder *proc){
		"killed":   func(holder *proc) { holder.signal("KILL") },
		"stopped":  func(holder *proc) { holder.signal("STOP") },
		"max hold": func(*proc) {},
	}
	for how, end := range ends {
		for name := range sessions {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := sqliteStage(t).forAll()
				flags := []string{"--ttl", "10s"}
				if how == "max hold" {
					flags = append(flags, "--max-hold", "10s")
				}
				holder, _ := s.escapes(name, flags...)
				end(holder)
				s.wants(0, "run", "n", "--", "sh", "-c", deathOf)
				s.wantDead()
				holder.signal("CONT")
				holder.wait()
			})
		}
	}
}

// tmux and screen start a server, which leaves the session of the command at once.
func init() {
	sessions["su"] = []string{"su", "-s", "/bin/sh", "root", "-c", "exec ./beats.sh"}
	sessions["runuser"] = []string{"runuser", "nobody", "-s", "/bin/sh", "-c", "./beats.sh; true"}
	sessions["setsid of a child"] = []string{"sh", "-c", "setsid -w sh -c './beats.sh & wait' & wait"}
	sessions["a daemon whose parent has ended"] = []string{"sh", "-c", "setsid -f ./beats.sh; exec sleep 100"}
	sessions["tmux"] = []string{"sh", "-c", `tmux -L fencelock-$$ new -d ./beats.sh; exec sleep 100`}
	sessions["screen"] = []string{"sh", "-c", `screen -dm sh beats.sh; exec sleep 100`}
}

// ways are those in which commands leave a program that works on when they end.
var ways = map[string]string{
	"&":                 "./beats.sh &",
	"set -m &":          "set -m; ./beats.sh >/dev/null 2>&1 &",
	"bash -i":           "bash --norc -ic './beats.sh & disown' 2>/dev/null",
	"setsid":            "setsid -f ./beats.sh",
	"su -c &":           "su -s /bin/sh root -c './beats.sh &'",
	"runuser -l setsid": `runuser -l root -s /bin/sh -c "cd '$PWD' && setsid -f ./beats.sh"`,
	"script -c setsid":  "script -qc 'setsid -f ./beats.sh; until [ -s beats ]; do sleep 0.02; done' /dev/null",
	"start_new_session": `python3 -c 'import subprocess; subprocess.Popen(["./beats.sh"], start_new_session=True)'`,
	"double fork":       `python3 -c 'import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); os.execv("./beats.sh", ["beats.sh"])'`,
	"tmux new -d":       "tmux -L fencelock-$$ new -d ./beats.sh",
	"screen -dm":        "screen -dm sh beats.sh",
}

// A command ends by itself, and what it started works on. Either the name stays locked, or fencelock names the
// process when it ends.
func TestNothingWorksOnUnsaidWhenTheCommandHasEnded(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			holder, writer := s.leaves(way)
			eventually(t, "it says what goes on", func() bool {
				said := holder.err.String()
				return holder.ended() || strings.Contains(said, "the name stays locked until they end")
			})
			said := holder.err.String()
			if holder.ended() {
				if !strings.Contains(said, fmt.Sprintf("process %d (", writer)) || !strings.Contains(said, "runs on without the lock") {
					t.Errorf("it ended, process %d works on, and it said %q", writer, said)
				}
				holder.wantExit(3)
				return
			}
			s.wants(exitNotAcquired, "run", "-n", "n", "--", "true")
			must(t, unix.Kill(writer, unix.SIGKILL))
			holder.wantExit(3)
		})
	}
}
