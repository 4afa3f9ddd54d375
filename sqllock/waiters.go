package sqllock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// maxAwait is how long Await waits before it answers that nothing has changed, and the longest that
// the line of a waiter is not read.
const maxAwait = time.Second

// waiterRegistry knows who waits in this process. A waiter is told by a step of this process
// that granted its claim, by news from other processes, or by a reading of its line.
type waiterRegistry struct {
	alarms driverutil.Alarms
	wake   chan struct{} // makes the watch look around

	mu       sync.Mutex
	lines    map[string]*waitedLine
	told     map[driverutil.ClaimRef]bool // broken claims that the alarms have heard of
	watching bool                         // the watch is running
}

// waitedLine is a line in which somebody of this process waits.
type waitedLine struct {
	waiters map[*waiter]bool
	unread  bool      // somebody joined, or something happened, since it was read
	due     time.Time // when to read it again at the latest
}

// waiter is one call of Await.
type waiter struct {
	since  time.Time
	result chan result   // takes the first result
	t      driver.Ticket // guarded by the registry
}

// result is what Await returns.
type result struct {
	t   driver.Ticket
	err error
}

// tell ends the waiting of w, unless it was told something before.
func (w *waiter) tell(r result) {
	select {
	case w.result <- r:
	default:
	}
}

// grant tells w that its claim is granted.
func (w *waiter) grant(g *grant) {
	t := w.t
	t.Granted, t.Ahead, t.Head = true, 0, nil
	t.Mark, t.Left = g.mark, g.left
	w.tell(result{t: t})
}

// Await returns when the claim of t is granted or gone, or at the first reading of its line after
// about a second, which takes longer if the database does.
// It holds no connection while it waits. All calls of one Backend share one reading
// of each line, so a thousand waiters cost hardly more than one; a grant costs
// nothing in the process of the claim that left, and one statement in others.
func (b *oldBackend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	ready := func(context.Context) (effects, error) { return effects{}, nil }
	if err := b.step(ctx, ready); err != nil {
		return driver.Ticket{}, err
	}
	w := &waiter{t: t, since: time.Now(), result: make(chan result, 1)}
	// From here on a grant is not missed: the line is read after this, or pushed.
	b.waiters.join(w)
	defer b.waiters.quit(w)
	b.kick()
	select {
	case r := <-w.result:
		return r.t, r.err
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	case <-b.ctx.Done():
		return driver.Ticket{}, driver.ErrClosed
	}
}

// Alarm calls f for claims of this Backend that were broken, by whatever process: at
// once if this Backend broke them, or somebody waits in it, and within about a second
// otherwise. While an Alarm is set the database is asked once a second.
func (b *oldBackend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	unsubscribe := b.waiters.alarms.Subscribe(f)
	b.kick()
	return func() {
		unsubscribe()
		b.kick()
	}
}

// kick makes the watch look around, and starts it if it is needed.
func (b *oldBackend) kick() {
	r := &b.waiters
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.watching && r.neededLocked() && b.open.Load() && b.begin() {
		r.watching = true
		go b.watch()
	}
	signal(r.wake)
}

// signal sends to a channel that has room for one, unless a signal is pending.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver tells waiters and alarms what a step has done to them, and other processes that
// they have news.
func (b *oldBackend) deliver(e effects) {
	if b.waiters.deliver(e) {
		b.kick()
	}
	for _, lost := range e.broken {
		b.waiters.alarms.Notify(lost.ID, lost.gone)
	}
	if e.strangers {
		b.store.notify()
	}
}

// deliver tells waiters of their grants. It reports whether lines must be read.
func (r *waiterRegistry) deliver(e effects) (unread bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range e.granted {
		g := &e.granted[i]
		if l := r.lines[g.Key]; l != nil {
			for w := range l.waiters {
				if w.t.ID == g.ID {
					w.grant(g)
				}
			}
		}
	}
	touched := e.touched
	for _, lost := range e.broken {
		r.told[lost.ClaimRef] = true
		touched = append(touched, lost.Key)
	}
	for _, key := range touched {
		if l := r.lines[key]; l != nil {
			l.unread, unread = true, true
		}
	}
	return unread
}

// unheard returns those broken claims that the alarms have not heard of. all are those that
// the database remembers.
func (r *waiterRegistry) unheard(all []broken) (fresh []broken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := make(map[driverutil.ClaimRef]bool, len(all))
	for _, lost := range all {
		if !r.told[lost.ClaimRef] {
			fresh = append(fresh, lost)
		}
		told[lost.ClaimRef] = true
	}
	r.told = told
	return fresh
}

// neededLocked reports whether anybody wants to be told anything.
func (r *waiterRegistry) neededLocked() bool { return len(r.lines) > 0 || r.alarms.Len() > 0 }

// waiting reports whether anybody waits.
func (r *waiterRegistry) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines) > 0
}

// retire ends the watch, unless the Backend goes on and somebody needs the watch again.
func (r *waiterRegistry) retire(closed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watching = r.neededLocked() && !closed
	return !r.watching
}

// join makes w known, and its line be read.
func (r *waiterRegistry) join(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[w.t.Key]
	if l == nil {
		l = &waitedLine{waiters: make(map[*waiter]bool)}
		r.lines[w.t.Key] = l
	}
	l.waiters[w] = true
	l.unread = true
}

// quit forgets w.
func (r *waiterRegistry) quit(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[w.t.Key]
	delete(l.waiters, w)
	if len(l.waiters) == 0 {
		delete(r.lines, w.t.Key)
	}
}

// unread returns the waiters of each line that must be read now, and when the next
// line is due.
func (r *waiterRegistry) unread(now time.Time) (lines map[string][]*waiter, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, l := range r.lines {
		switch {
		case l.unread || !l.due.After(now):
			// If this reading fails, another one follows.
			l.unread, l.due = false, now.Add(maxAwait)
			if lines == nil {
				lines = make(map[string][]*waiter)
			}
			lines[key] = slices.Collect(maps.Keys(l.waiters))
		case next.IsZero() || l.due.Before(next):
			next = l.due
		}
	}
	return lines, next
}

// update lets the waiters ws know how their claims stand in a line. It returns those whose
// claims are granted or not there.
func (r *waiterRegistry) update(s *snapshot, ws []*waiter) (decided []*waiter) {
	places := make(map[string]int, len(s.claims))
	var head *row
	soonest := maxAwait
	for i := range s.claims {
		c := &s.claims[i]
		if !c.lingering {
			places[c.id] = i
		}
		left := c.left(s.now)
		if head == nil && left > 0 {
			head = c
		}
		soonest = min(soonest, left)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ws {
		ahead, ok := places[w.t.ID]
		if !ok || s.claims[ahead].granted {
			decided = append(decided, w)
			continue
		}
		left := s.claims[ahead].left(s.now)
		w.t.Granted, w.t.Ahead, w.t.Left, w.t.Head = false, ahead, left, nil
		if head != nil {
			w.t.Head = head.busy(head.left(s.now), ahead)
		}
		if time.Since(w.since) >= maxAwait {
			w.tell(result{t: w.t})
		}
	}
	if l := r.lines[s.key]; l != nil {
		l.due = time.Now().Add(soonest)
	}
	return decided
}
