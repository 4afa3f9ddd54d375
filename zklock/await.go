package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	// maxAwait is the longest that Await waits before it returns.
	maxAwait = time.Second
	// maxUnread is the longest for which a line is not read although nothing was
	// heard. Watches are not lost; it is a net below them.
	maxUnread = 10 * time.Second
)

// Await returns when the claim of t is granted or gone, or after a second. It costs
// a read of the line when somebody left on whom the claim depends, and after a
// broken connection, and now and then; and a watch for each new node of those.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	t, err := b.await(ctx, t)
	return t, failed(ctx, "waiting in the line of", t.Key, closeEnough(err))
}

func (b *Backend) await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	p, gone := b.find(ref{t.Key, t.ID})
	switch {
	case gone != nil:
		return t, *gone
	case p == nil:
		return t, driver.ErrGone{}
	}
	timer := time.NewTimer(maxAwait)
	defer timer.Stop()
	for {
		conn, s, err := b.live(ctx)
		if err != nil {
			return t, err
		}
		node, own, ok := b.inLine(p)
		switch {
		case !ok:
			if len(p.lock) > 0 && b.unsettled(p) {
				return t, errors.New("its Enter has not been answered yet")
			}
			return t, b.whyGone(p)
		case own != s:
			return t, errNoSession
		}
		_, gen, _ := b.link.state()
		b.mu.Lock()
		known := p.members != nil && p.gen == gen && time.Since(p.looked) < maxUnread
		names, over := p.members, p.over
		b.mu.Unlock()
		if !known {
			now, _, l, err := b.standingOf(ctx, conn, t.Claim, p)
			if err != nil || now.Granted {
				return now, err
			}
			if now.Head = t.Head; l != nil {
				if token, err := tokenOf(l.members[0].czxid); now.Head != nil && (err != nil || now.Head.Token != token) {
					now.Head = nil // somebody else is first, and nobody has asked who
				}
			}
			t = now
			continue
		}
		// Those it waits for, and itself: an operator may end a waiter.
		dir := path.Dir(node)
		var fired []<-chan struct{}
		all := true
		for _, name := range append([]string{path.Base(node)}, names...) {
			w, err := b.watch(ctx, conn, s, dir+"/"+name)
			if err != nil {
				return t, err
			}
			if w == nil {
				all = false // gone before it could be watched
				break
			}
			fired = append(fired, w.fired)
		}
		if !all {
			b.reread(p)
			continue
		}
		woken, err := b.waitForAny(ctx, fired, over, s.over, timer.C)
		if err != nil {
			return t, err
		}
		if !woken {
			return t, nil
		}
		b.reread(p)
	}
}

// unsettled reports whether an Enter of p is still under way.
func (b *Backend) unsettled(p *place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.gone == nil && (p.pending || p.unsure != nil)
}

// reread has the line of p read again before anything is waited for.
func (b *Backend) reread(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.members = nil
}

// waitForAny waits for one of many channels; it answers false if time is over.
func (b *Backend) waitForAny(ctx context.Context, fired []<-chan struct{}, over, lost <-chan struct{}, timer <-chan time.Time) (bool, error) {
	any := make(chan struct{}, 1)
	if len(fired) > 2 {
		// A goroutine for each group of watches, for as long as this call.
		stop := make(chan struct{})
		defer close(stop)
		for _, f := range fired[2:] {
			go func() {
				select {
				case <-f:
					select {
					case any <- struct{}{}:
					default:
					}
				case <-stop:
				}
			}()
		}
	}
	second := fired[0]
	if len(fired) > 1 {
		second = fired[1]
	}
	select {
	case <-fired[0]:
	case <-second:
	case <-any:
	case <-over:
	case <-lost:
	case <-timer:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-b.closed:
		return false, driver.ErrClosed
	}
	return true, nil
}
