package quorumlock

import (
	"context"
	"errors"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// agreement counts what the nodes answer to a Leave, a Break or an Await. Those who
// answer count; who waits for a majority is woken once, when it is settled.
type agreement struct {
	b       *Backend
	settled chan struct{} // closed then

	mu        sync.Mutex
	over      bool // it is settled: the answers that follow change nothing
	came      int
	done      int
	goners    int
	permanent int
	gone      driver.ErrGone
	short     *shortError // what else was answered
	err       error
}

func (b *Backend) agreement(key string) *agreement {
	return &agreement{b: b, settled: make(chan struct{}), short: &shortError{key: key, need: b.majority, of: len(b.nodes)}}
}

// add counts what one node answered.
func (a *agreement) add(l leaving) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.came++
	a.count(l)
	if a.over = a.verdict(); a.over {
		close(a.settled)
	}
}

func (a *agreement) count(l leaving) {
	if l.err == nil {
		a.done++
		return
	}
	var g driver.ErrGone
	if errors.As(l.err, &g) {
		if a.goners++; g.Broken || a.gone.Reason == "" && !a.gone.Broken {
			a.gone = g
		}
		return
	}
	if errors.As(l.err, new(*driver.PermanentError)) {
		a.permanent++
	}
	a.short.add(a.b.nodes[l.node].name, l.err)
}

// verdict reports whether no further answer matters, and sets err.
func (a *agreement) verdict() bool {
	spare := len(a.b.nodes) - a.b.majority
	switch {
	case a.done >= a.b.majority:
	case a.goners > spare:
		a.err = a.gone
	case a.permanent > spare:
		a.err = &driver.PermanentError{Err: a.short}
	case a.came == len(a.b.nodes):
		a.short.have = a.done
		a.err = a.short
	default:
		return false
	}
	return true
}

// agree returns when a majority has done it, or can no longer.
func (b *Backend) agree(ctx context.Context, a *agreement) error {
	select {
	case <-a.settled:
		return a.err
	case <-ctx.Done():
		// What is settled counts, though ctx ended while the last answer came.
		select {
		case <-a.settled:
			return a.err
		default:
			return ctx.Err()
		}
	case <-b.closing.Done():
		return driver.ErrClosed
	}
}
