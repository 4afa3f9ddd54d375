package child

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// descendants lists the processes that a process has started, directly or not, and the orphans
// that came to it, but not those in but and what is below them. It misses what is started or
// moved while it looks, so look again.
func descendants(of int, but ...int) []int {
	var found []int
	seen := map[int]bool{of: true}
	for _, pid := range but {
		seen[pid] = true
	}
	for next := []int{of}; len(next) > 0; next = next[1:] {
		for _, pid := range childrenOf(next[0]) {
			if !seen[pid] {
				seen[pid] = true
				next = append(next, pid)
				found = append(found, pid)
			}
		}
	}
	return found
}

// childrenOf lists the children of a process. The file of the kernel lists also those whose
// own files in /proc are hidden (hidepid).
func childrenOf(pid int) []int {
	var found []int
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				found = append(found, n)
			}
		}
	}
	if len(files) > 0 {
		return found
	}
	// A kernel without that file: every process says who its parent is.
	each(func(child int, p process) {
		if p.parent == pid {
			found = append(found, child)
		}
	})
	return found
}

// groupGone reports whether no process of the group can run any more. A zombie keeps the
// group in being for as long as its parent does not wait for it, and that parent may be a
// process that left the group.
func groupGone(group int) bool {
	if unix.Kill(-group, 0) == unix.ESRCH {
		return true
	}
	if _, err := stat(1); err != nil {
		return false // processes are hidden (hidepid): what cannot be seen may be alive
	}
	seen, alive := false, false
	each(func(_ int, p process) {
		if p.group == group {
			seen = true
			alive = alive || !p.dead
		}
	})
	return seen && !alive
}

// zombie reports whether the process has ended and was not waited for.
func zombie(pid int) bool {
	p, err := stat(pid)
	return err == nil && p.dead
}

// describe names a process for people.
func describe(pid int) string {
	text := "process " + strconv.Itoa(pid)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	info, err2 := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil || err2 != nil {
		return text + " of another user"
	}
	owner := "another user"
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = "uid " + strconv.Itoa(int(s.Uid))
		if u, err := user.LookupId(strconv.Itoa(int(s.Uid))); err == nil {
			owner = u.Username
		}
	}
	return fmt.Sprintf("%s (%q of %s)", text, strings.TrimSpace(string(name)), owner)
}

// process is what /proc says of one.
type process struct {
	parent, group int
	dead          bool
}

func stat(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// pid (name) state ppid pgrp …, where the name may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return process{}, os.ErrInvalid
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	state := string(fields[0])
	return process{parent, group, state == "Z" || state == "X"}, nil
}

// each calls f with every process that can be seen.
func each(f func(pid int, p process)) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := stat(pid); err == nil {
			f(pid, p)
		}
	}
}
