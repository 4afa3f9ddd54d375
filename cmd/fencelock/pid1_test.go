//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
)

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
func childOf(t *testing.T, parent int) (pid int) {
	t.Helper()
	eventually(t, "there is a child of "+strconv.Itoa(parent), func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range all {
			stat, _ := os.ReadFile(file)
			_, rest, _ := strings.Cut(string(stat), ") ")
			if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(parent) {
				pid, _ = strconv.Atoi(strings.Split(file, "/")[2])
				return true
			}
		}
		return false
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
		i=0
		while grep -q "^State:.Z" /proc/[0-9]*/status 2>/dev/null; do
			i=$((i+1)); [ $i -lt 200 ] || exit 9
			sleep 0.02
		done
		exit 7`)
	p.wantExit(7)
}

func TestFirstProcessOfAContainerHandsSignalsOn(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	p := s.asFirst("run", "n", "--", "sh", "-c", `trap "exit 5" TERM; echo $$ >pid; while :; do sleep 0.02; done`)
	s.pid("pid")
	first := childOf(t, p.cmd.Process.Pid)
	waiter := s.asFirst("run", "n", "--", "true")
	eventually(t, "it waits", func() bool { return strings.Contains(s.must("ls"), "waits") })
	must(t, unix.Kill(childOf(t, waiter.cmd.Process.Pid), unix.SIGTERM))
	waiter.wantExit(143)
	must(t, unix.Kill(first, unix.SIGTERM))
	p.wantExit(5)
	steps.Same(t, "something is left in the store", s.must("ls"), "")
}
