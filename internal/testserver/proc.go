package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Children are the processes that pid has started, where the system tells.
func Children(pid int) []int {
	var all []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		if f := stat(name); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

func eachChild(pid int, do func(*os.Process) error) (err error) {
	for _, child := range Children(pid) {
		if p, gone := os.FindProcess(child); gone == nil {
			err = errors.Join(err, do(p))
		}
	}
	return err
}

// stat reads what stands behind the name of the program, which may hold anything: the
// state, the parent and more. A process that has ended has nothing.
func stat(name string) []string {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// Stands reports whether no thread of a process runs, where the system tells.
func Stands(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		if f := stat(name); len(f) > 0 && !strings.Contains("TtZX", f[0]) {
			return false
		}
	}
	return true
}

// Pause stops a process with SIGSTOP, and Resume lets it go on. One that has ended is fine.
func Pause(p *os.Process) error { return unlessDone(pause(p)) }

// Resume lets a process go on.
func Resume(p *os.Process) error { return unlessDone(resume(p)) }

func unlessDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// AwaitStop waits until a process that was sent SIGSTOP stands: each of its threads stops
// when it is next looked at, and one that waits for a disk only then.
func AwaitStop(pid int) error {
	return comesToPass(fmt.Sprintf("process %d stands after SIGSTOP", pid), func() bool { return Stands(pid) })
}
