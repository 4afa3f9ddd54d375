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
	return t, failed(ctx, "waiting in the line of", t.Key, err)
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
		names, watches, over := p.members, p.watches, p.over
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
		if watches == nil {
			if watches, err = b.watchAll(ctx, conn, s, p, node, names); err != nil {
				return t, err
			}
			if watches == nil { // somebody was gone before it could be watched
				b.reread(p)
				continue
			}
		}
		woken, err := b.waitForAny(ctx, watches, over, s.over, timer.C)
		if err != nil {
			return t, err
		}
		if !woken {
			return t, nil
		}
		b.reread(p)
	}
}

// watchAll sets the watches on those whom p waits for, and on p itself: an operator
// may end a waiter. It returns nil if one of them is gone.
func (b *Backend) watchAll(ctx context.Context, conn client, s *session, p *place, node string, names []string) ([]*watch, error) {
	dir := path.Dir(node)
	var all []*watch
	for _, name := range append([]string{path.Base(node)}, names...) {
		w, err := b.watch(ctx, conn, s, dir+"/"+name)
		if w == nil || err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.members != nil {
		p.watches = all
	}
	return all, nil
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
	p.members, p.watches = nil, nil
}

// waitForAny waits until one of the watches fires; it answers false if time is over.
func (b *Backend) waitForAny(ctx context.Context, watches []*watch, over, lost <-chan struct{}, timer <-chan time.Time) (bool, error) {
	first, second := watches[0].fired, watches[len(watches)-1].fired
	rest := make(chan struct{}, 1)
	if len(watches) > 2 {
		// A goroutine for each further watch, for as long as this call.
		stop := make(chan struct{})
		defer close(stop)
		for _, w := range watches[1 : len(watches)-1] {
			go func() {
				select {
				case <-w.fired:
					select {
					case rest <- struct{}{}:
					default:
					}
				case <-stop:
				}
			}()
		}
	}
	select {
	case <-first:
	case <-second:
	case <-rest:
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
