//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testserver"
)

// beats is a program that ends for KILL only, says its process id, and writes on and on.
const beats = `#!/bin/sh
trap "" TERM INT HUP QUIT
echo $$ >pid
while :; do echo beat >>beats; sleep 0.02; done
`

// sessions are ways in which people's commands leave the process group. Each runs a program that writes on
// and on. make verify has more of them.
var sessions = map[string][]string{
	"su to another user":   {"su", "-s", "/bin/sh", "nobody", "-c", "./beats.sh; true"},
	"script":               {"script", "-qfc", "exec ./beats.sh", "/dev/null"},
	"setsid":               {"setsid", "-w", "./beats.sh"},
	"a daemon of a daemon": {"sh", "-c", "setsid -f sh -c 'setsid -f ./beats.sh; exec sleep 100'; exec sleep 100"},
}

// escapes starts a holder of n with these flags whose command left the process group as
// sessions says, and waits until it writes.
func (s *stage) escapes(how string, flags ...string) (holder *proc, pid int) {
	s.t.Helper()
	writeProgram(s.t, s.path("beats.sh"), "755", beats)
	args := append([]string{"run"}, flags...)
	holder = s.start("fencelock", append(append(args, "n", "--"), sessions[how]...)...)
	return holder, s.pid("pid")
}

// forAll lets every user work in the folder of the stage.
func (s *stage) forAll() *stage {
	s.t.Helper()
	for _, dir := range []string{s.dir, filepath.Dir(binary)} {
		for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			must(s.t, os.Chmod(dir, 0o777))
		}
	}
	return s
}

// onEachEscape runs f for each way to leave the process group.
func onEachEscape(t *testing.T, f func(s *stage, holder *proc, pid int)) {
	t.Parallel()
	for name := range sessions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t).forAll()
			holder, pid := s.escapes(name, "--ttl", "10m", "--grace", "0")
			f(s, holder, pid)
		})
	}
}

func TestKilledHolderTakesWithItWhatLeftItsGroup(t *testing.T) {
	onEachEscape(t, func(s *stage, holder *proc, pid int) {
		holder.signal("KILL")
		holder.wait()
		testserver.Eventually(s.t, time.Minute, "the writer has ended", func() bool { return !alive(pid) })
		// And long before anybody else can begin.
		s.wants(exitNotAcquired, "wait", "-w", "0", "n")
	})
}

func TestBrokenLockEndsWhatLeftTheGroup(t *testing.T) {
	onEachEscape(t, func(s *stage, holder *proc, pid int) {
		s.must("break", "n", "--yes", "--token", token(s))
		holder.wantExit(exitLost)
		if alive(pid) {
			s.t.Error("the writer lives when fencelock has ended")
		}
	})
}

// As entry points of containers do: a sidecar first, then fencelock in place of the shell. The sidecar is a
// child of fencelock, and not one of its command.
func TestWhatRanBeforeFencelockIsNotEnded(t *testing.T) {
	t.Parallel()
	for _, watchdog := range []string{"lives", "was killed"} {
		t.Run("the watchdog "+watchdog, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			holder := s.start("sh", "-c", `sleep 1000 & echo $! >before
				exec fencelock run --ttl 10m --grace 0 n -- sh -c 'echo $$ >pid; exec sleep 1000'`)
			before := s.pid("before")
			defer func() { must(t, unix.Kill(before, unix.SIGKILL)) }()
			s.pid("pid")
			if watchdog == "was killed" {
				killWatchdog(t, holder)
			}
			s.must("break", "n", "--yes", "--token", token(s))
			holder.wantExit(exitLost)
			if !alive(before) {
				t.Error("a process that fencelock has not started was ended with its command")
			}
		})
	}
}

// A command that dies of a signal has not chosen what it leaves behind: that is told, too, once setsid has ended.
func TestNameStaysLockedUntilAKilledCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "n", "--", "setsid", "-w", "sh", "-c",
		`trap "echo told >told" TERM; echo $$ >pid; while :; do sleep 0.02; done`)
	pid := s.pid("pid")
	holder.signal("TERM")
	eventually(t, "the command in another session is told", func() bool { return s.read("told") != "" })
	holder.says("processes that it has started run on: process ")
	s.wants(exitNotAcquired, "wait", "-w", "0", "n")
	must(t, unix.Kill(pid, unix.SIGKILL))
	holder.wantExit(128 + int(unix.SIGTERM))
}

// asNobody starts fencelock as a user without rights.
func (s *stage) asNobody(args ...string) *proc {
	s.t.Helper()
	p := s.command("fencelock", args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return p.begin()
}

// becomesRoot returns a program of the stage that runs its arguments as root, as sudo does.
func (s *stage) becomesRoot() string {
	s.t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	must(s.t, err)
	program, err := os.ReadFile(setpriv)
	must(s.t, err)
	writeProgram(s.t, s.path("setpriv"), "4755", string(program))
	writeProgram(s.t, s.path("sudo"), "755", "#!/bin/sh\nexec ./setpriv --reuid 0 --regid 0 --clear-groups \"$@\"\n")
	writeProgram(s.t, s.path("beats.sh"), "755", beats)
	return "./sudo"
}

func TestWhatFencelockMayNotEndIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"the command":        "exec ./sudo ./beats.sh",
		"a child":            "./sudo ./beats.sh & exec sleep 1000",
		"in another session": "setsid -w ./sudo ./beats.sh & exec sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t).forAll()
			s.becomesRoot()
			holder := s.asNobody("run", "--ttl", "5m", "n", "--", "sh", "-c", command)
			pid := s.pid("pid")
			s.must("break", "n", "--yes", "--token", token(s))
			holder.says("was lost", `("beats.sh" of root)`)
			if !alive(pid) || strings.Contains(holder.err.String(), "stays locked") {
				t.Errorf("the command lives: %v; it said %q", alive(pid), holder.err.String())
			}
			must(t, unix.Kill(pid, unix.SIGKILL))
			holder.wantExit(exitLost)
		})
	}
}

func TestHiddenProcessCountsAsAlive(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t).forAll()
	s.becomesRoot()
	const hide = `mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`
	holder := s.start("unshare", "-m", "sh", "-c", hide, "sh", binary, "run", "--ttl", "5m", "n", "--",
		"sh", "-c", "./sudo ./beats.sh & until [ -s pid ]; do sleep 0.02; done; exit 3")
	pid := s.pid("pid")
	holder.says("the name stays locked until they end")
	s.wants(exitNotAcquired, "wait", "-w", "0", "n")
	s.must("break", "n", "--yes", "--token", token(s))
	holder.says("may not end")
	must(t, unix.Kill(pid, unix.SIGKILL))
	holder.wantExit(exitLost)
}
