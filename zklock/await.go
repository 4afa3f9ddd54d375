package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

const (
	// maxAwait is the longest that Await waits before it returns.
	maxAwait = time.Second
	// maxUnread is the longest for which a line is not read although nothing was
	// heard. Watches are not lost; it is a net below them.
	maxUnread = 10 * time.Second
	// curious is how long a claim has waited when it begins to listen for its own end,
	// which an operator may bring, and asks who is first in a long line. Where lines go
	// on faster nobody pays for that: the reading that grants a claim tells whether it is
	// still there.
	curious = 250 * time.Millisecond
	// fewAhead is how many may be ahead of a claim that asks as it joins who is first. In
	// a longer line somebody else is by the time that anybody has read it.
	fewAhead = 4
)

// Await returns when the claim of t is granted or gone, or after a second. It costs
// a watch on each of those on whom the claim depends, a read of the line when one of
// them left, after a broken connection, and now and then; and two reads more if the
// claim waits for longer than a quarter of a second.
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
	end := time.Now().Add(maxAwait)
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
		names, watches, over, asked := p.members, p.watches, p.over, p.asked
		listens := p.joined.Add(curious)
		b.mu.Unlock()
		if !known {
			now, _, l, err := b.standingOf(ctx, conn, t.Claim, p)
			if err != nil || now.Granted {
				return now, err
			}
			if l.members[0].name == asked {
				now.Head = t.Head
			}
			t = now
			continue
		}
		long := !time.Now().Before(listens)
		if long {
			names = append(names[:len(names):len(names)], path.Base(node))
		}
		if len(watches) != len(names) {
			if watches, err = b.watchAll(ctx, conn, p, node, names); err != nil {
				return t, err
			}
			if watches == nil { // somebody was gone before it could be watched
				b.reread(p)
				continue
			}
		}
		until := end
		if long {
			if head, err := b.headOf(ctx, conn, p, t.Ahead); err != nil {
				return t, err
			} else if head != nil {
				t.Head = head
			}
		} else if listens.Before(end) {
			until = listens
		}
		timer.Reset(time.Until(until))
		woken, err := b.waitForAny(ctx, watches, over, s.over, timer.C)
		switch {
		case err != nil:
			return t, err
		case woken:
			b.reread(p)
		case until == end:
			return t, nil
		}
	}
}

// watchAll sets the watches on those whom p waits for and, if it has waited for a while,
// on p itself. It returns nil if one of them is gone.
func (b *Backend) watchAll(ctx context.Context, conn client, p *place, node string, names []string) ([]*watch, error) {
	dir := path.Dir(node)
	var all []*watch
	for _, name := range names {
		w, err := b.watch(ctx, conn, dir+"/"+name)
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

// headOf describes the claim that was first in line when p last looked. It is nil if that
// has gone, and if it was asked for before. Where p waits for that one alone the request
// sets the watch on it, too.
func (b *Backend) headOf(ctx context.Context, conn client, p *place, ahead int) (*driver.BusyError, error) {
	b.mu.Lock()
	first, asked, names := p.first, p.asked, p.members
	b.mu.Unlock()
	if first.name == asked {
		return nil, nil
	}
	var f *found
	var err error
	if len(names) == 1 && names[0] == first.name {
		node := b.lineOf(p.key) + "/" + first.name
		var w *watch
		if w, err = b.watch(ctx, conn, node); w == nil || err != nil {
			return nil, err
		}
		f, err = opened(node, first, w.node)
	} else {
		f, err = b.open(ctx, conn, p.key, first)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	p.asked = first.name
	b.mu.Unlock()
	return f.busy(ahead)
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
