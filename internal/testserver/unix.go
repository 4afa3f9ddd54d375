//go:build unix

package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// runAs makes cmd run as the first of the users that this system has, and gives it dir
// with all that is in it. Some servers refuse to run as root. Who is not root runs them
// as himself.
func runAs(cmd *exec.Cmd, users []string, dir string) error {
	if len(users) == 0 || os.Geteuid() != 0 {
		return nil
	}
	for _, name := range users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if err := passable(filepath.Dir(dir)); err != nil {
			return err
		}
		return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, uid, gid)
		})
	}
	return fmt.Errorf("none of the users %v exists, and %s does not run as root", users, cmd.Path)
}

// passable lets others pass through the folders of a test on the way to theirs, which
// package testing makes for their owner alone.
func passable(dir string) error {
	for dir != filepath.Dir(dir) && dir != filepath.Clean(os.TempDir()) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o001 == 0 {
			if err := os.Chmod(dir, mode|0o011); err != nil {
				return err
			}
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
