//go:build unix

package child

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// registry knows the children of this process. It waits for all of them, its own
// and those it was given: as process 1, or as a subreaper, it becomes the parent of
// orphans, which stay zombies until somebody waits for them. Nothing else in the
// program may wait for a child.
type registry struct {
	// mu is held from before a fork until the child is entered here: a child that
	// ends at once must not be reaped as a stranger.
	mu          sync.Mutex
	started     bool
	ended       map[int]func(unix.WaitStatus)
	orphanEnded func()
}

var children = registry{ended: map[int]func(unix.WaitStatus){}}

// Adopt makes this process the one that orphans of its command come to, and reaps
// them from now on. A container's first process must call it before it waits for
// anything. Calling it again changes nothing.
func Adopt() {
	children.mu.Lock()
	defer children.mu.Unlock()
	if children.started {
		return
	}
	children.started = true
	becomeSubreaper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGCHLD)
	go func() {
		for {
			children.reap()
			<-c
		}
	}()
}

func (p *registry) reap() {
	for {
		p.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if err == unix.EINTR {
			p.mu.Unlock()
			continue
		}
		if err != nil || pid <= 0 {
			p.mu.Unlock()
			return
		}
		notify, ours := p.ended[pid]
		if !status.Stopped() {
			delete(p.ended, pid)
		}
		orphanEnded := p.orphanEnded
		p.mu.Unlock()
		switch {
		case ours:
			notify(status)
		case orphanEnded != nil:
			orphanEnded()
		}
	}
}

// fork runs f, which starts a process, and calls notify when that process stops
// or ends.
func (p *registry) fork(f func() (int, error), notify func(unix.WaitStatus)) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := f()
	if err != nil {
		return 0, err
	}
	p.ended[pid] = notify
	return pid, nil
}

// expect calls notify when the process stops or ends, if it becomes a child of this one.
func (p *registry) expect(pid int, notify func(unix.WaitStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[pid] = notify
}

// forget undoes expect, and reports whether the process was not waited for yet.
func (p *registry) forget(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, expected := p.ended[pid]
	delete(p.ended, pid)
	return expected
}
