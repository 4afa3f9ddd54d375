//go:build linux

package main

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// daemon tells systemd what a service tells it, and prints what systemd has told it.
const daemon = `
import os, signal, socket, sys
def tell(text):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = os.environ["NOTIFY_SOCKET"]
    s.sendto(text.encode(), "\0" + address[1:] if address[0] == "@" else address)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with open("told", "w") as file:
    print(os.getpid(), os.environ["LISTEN_PID"], os.environ["WATCHDOG_PID"], os.environ["LISTEN_FDS"],
          socket.socket(fileno=3).getsockname(), file=file)
tell(f"READY=1\nMAINPID={os.getpid()}")
signal.sigwait({signal.SIGTERM})
tell("STOPPING=1")
sys.exit(7)
`

// manager is the socket of a systemd, which sees who sends.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}))
	must(t, err)
	return &manager{t, conn}
}

// hears returns the next message and who sent it.
func (m *manager) hears() (text string, from int) {
	m.t.Helper()
	b, rights := make([]byte, 1000), make([]byte, 1000)
	must(m.t, m.conn.SetReadDeadline(time.Now().Add(patience)))
	n, nr, _, _, err := m.conn.ReadMsgUnix(b, rights)
	must(m.t, err)
	all, err := unix.ParseSocketControlMessage(rights[:nr])
	must(m.t, err)
	who, err := unix.ParseUnixCredentials(&all[0])
	must(m.t, err)
	return string(b[:n]), int(who.Pid)
}

// A unit of systemd with Type=notify, WatchdogSec= and a socket. What systemd says to the process that it started is
// for the command, and what the command says comes from the command: so the unit needs NotifyAccess=all.
func TestServiceUnderRunTalksToSystemd(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(s *stage) string{
		"a path": func(s *stage) string { return s.path("notify") },
		"an abstract address": func(s *stage) string {
			return "@fencelock-test/" + strconv.Itoa(unix.Getpid()) + "/" + filepath.Base(filepath.Dir(s.dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStage(t)
			systemd := newManager(t, address(s))
			listen, err := net.Listen("unix", s.path("listen"))
			must(t, err)
			defer listen.Close()
			file, err := listen.(*net.UnixListener).File()
			must(t, err)
			defer file.Close()
			s.write("daemon.py", daemon)
			unit := s.command("sh", "-c", `export SYSTEMD_EXEC_PID=$$ LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_FDS=1
				exec fencelock run n -- python3 daemon.py`)
			unit.cmd.Env = append(unit.cmd.Env, "NOTIFY_SOCKET="+address(s))
			unit.cmd.ExtraFiles = append(unit.cmd.ExtraFiles, file)
			unit.begin()

			text, from := systemd.hears()
			command := strconv.Itoa(from)
			if text != "READY=1\nMAINPID="+command || from == unit.cmd.Process.Pid {
				t.Errorf("process %d of a unit with main process %d said %q", from, unit.cmd.Process.Pid, text)
			}
			want := command + " " + command + " " + command + " 1 listen"
			if told := strings.Replace(s.read("told"), s.dir+"/", "", 1); strings.TrimSpace(told) != want {
				t.Errorf("the command was told %q, want %q", told, want)
			}
			unit.signal("TERM")
			if text, from = systemd.hears(); text != "STOPPING=1" || strconv.Itoa(from) != command {
				t.Errorf("process %d said %q, want STOPPING=1 of the command, and nothing before", from, text)
			}
			unit.wantExit(7)
			unit.wantLine("Type=notify", "NotifyAccess=all")
			must(t, systemd.conn.SetReadDeadline(time.Now().Add(-time.Second)))
			if n, _, err := systemd.conn.ReadFromUnix(make([]byte, 10)); err == nil {
				t.Errorf("%d bytes came after that", n)
			}
		})
	}
}

// A command inside a service is not its main process: what systemd says to another process stays what it is.
func TestNoteForAnotherProcessStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	p := s.command("fencelock", "run", "n", "--", "sh", "-c", "echo $LISTEN_PID $WATCHDOG_PID")
	p.cmd.Env = append(p.cmd.Env, "LISTEN_PID=1", "WATCHDOG_PID=")
	p.begin().wantExit(0)
	steps.Same(t, "the command was told", strings.TrimSpace(p.out.String()), "1")
}

// asFirst runs fencelock as process 1 of a namespace, as a container does. Where namespaces are
// not permitted, it runs below a shell that reaps nothing: fencelock adopts orphans everywhere.
func (s *stage) asFirst(args ...string) *proc {
	s.t.Helper()
	unshare := []string{"--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if code, p := s.run("unshare", append(unshare, "true")...); code != 0 {
		s.t.Logf("not as process 1: %s", p.err.String())
		return s.start("sh", append([]string{"-c", `"$0" "$@" & wait $!`, binary}, args...)...)
	}
	return s.start("unshare", append(append(unshare, binary), args...)...)
}

// childOf returns the one child of a process, as seen from here.
func childOf(p *proc) (pid int) {
	p.t.Helper()
	eventually(p.t, "it has a child", func() bool {
		all := testserver.Children(p.cmd.Process.Pid)
		if len(all) > 0 {
			pid = all[0]
		}
		return len(all) > 0
	})
	return pid
}

func TestFirstProcessOfAContainerReapsOrphans(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	p := s.asFirst("run", "n", "--", "sh", "-c", `
		(setsid sh -c 'echo done >orphan' &)
		(sh -c 'echo done >orphan2' &)
		until [ -e orphan ] && [ -e orphan2 ]; do sleep 0.02; done
		while grep -q "^State:.Z" /proc/[0-9]*/status 2>/dev/null; do sleep 0.02; done
		exit 7`)
	p.wantExit(7)
}

func TestFirstProcessOfAContainerHandsSignalsOn(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	p := s.asFirst("run", "n", "--", "sh", "-c", `trap "exit 5" TERM; echo $$ >pid; while :; do sleep 0.02; done`)
	s.pid("pid")
	first := childOf(p)
	waiter := s.asFirst("run", "n", "--", "true")
	eventually(t, "it waits", func() bool { return strings.Contains(s.must("ls"), "waits") })
	must(t, unix.Kill(childOf(waiter), unix.SIGTERM))
	waiter.wantExit(143)
	must(t, unix.Kill(first, unix.SIGTERM))
	p.wantExit(5)
	steps.Same(t, "something is left in the store", s.must("ls"), "")
}
