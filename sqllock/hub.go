package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// hub knows who waits in this process. A claim's standing reaches its waiter from
// three sides: a step of this process that granted it, news from other processes,
// and a reading of the line.
type hub struct {
	b *Backend

	mu      sync.Mutex
	lines   map[string]*waited
	waiters int
	alarms  []*alarm
	told    map[place]bool // broken claims that the alarms have heard of
	watched bool           // the watch is running
	wake    chan struct{}  // tells the watch to look around
}

// waited is a line in which somebody of this process waits.
type waited struct {
	waiters map[string][]*waiter // by the ID of their claim; seldom more than one
	unread  bool                 // somebody joined, or something happened, since it was read
	due     time.Time            // when a claim ahead may have expired; zero if not known
}

// place is what names a claim.
type place struct{ key, id string }

// alarm is one listener for broken claims.
type alarm struct {
	f func(id string, gone driver.ErrGone)
}

func (h *hub) init(b *Backend) {
	h.b = b
	h.lines = make(map[string]*waited)
	h.told = make(map[place]bool)
	h.wake = make(chan struct{}, 1)
}

// kick makes the watch look around, and starts it if it is needed.
func (h *hub) kick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kickLocked()
}

func (h *hub) kickLocked() {
	if !h.watched && h.needed() && h.b.open.Load() && h.b.begin() {
		h.watched = true
		go h.b.watch()
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// needed reports whether anybody wants to be told anything.
func (h *hub) needed() bool { return h.waiters > 0 || len(h.alarms) > 0 }

// retire ends the watch, unless somebody needs it again.
func (h *hub) retire() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.needed() && h.b.ctx.Err() == nil {
		return false
	}
	h.watched = false
	return true
}

// join makes w known, and its line be read.
func (h *hub) join(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[w.t.Key]
	if l == nil {
		l = &waited{waiters: make(map[string][]*waiter)}
		h.lines[w.t.Key] = l
	}
	l.waiters[w.t.ID] = append(l.waiters[w.t.ID], w)
	l.unread = true
	h.waiters++
	h.kickLocked()
}

// quit forgets w. It may have been told in the meantime.
func (h *hub) quit(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(w)
}

func (h *hub) drop(w *waiter) bool {
	l := h.lines[w.t.Key]
	if l == nil {
		return false
	}
	mine := l.waiters[w.t.ID]
	i := slices.Index(mine, w)
	if i < 0 {
		return false
	}
	if len(mine) > 1 {
		l.waiters[w.t.ID] = append(mine[:i:i], mine[i+1:]...)
	} else {
		delete(l.waiters, w.t.ID)
	}
	h.waiters--
	if len(l.waiters) == 0 {
		delete(h.lines, w.t.Key)
	}
	return true
}

// tell ends the waiting of w, once.
func (h *hub) tell(w *waiter, v verdict) {
	if h.drop(w) {
		w.verdict <- v
	}
}

// settle is tell for those who do not hold mu.
func (h *hub) settle(w *waiter, v verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(w, v)
}

// waiting reports whether anybody waits.
func (h *hub) waiting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiters > 0
}

// standing returns what w is to be told when its time is over. If nobody has looked since
// it waits, that is nothing yet, and it will be told once somebody has.
func (h *hub) standing(w *waiter) (v verdict, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case v := <-w.verdict:
		return v, true
	default:
		w.late = !w.read
		return verdict{t: w.t}, w.read
	}
}

// deliver tells waiters and alarms what a step has done to them.
func (h *hub) deliver(e effects) {
	if len(e.granted) == 0 && len(e.broken) == 0 && len(e.touched) == 0 {
		return
	}
	h.mu.Lock()
	for _, g := range e.granted {
		if l := h.lines[g.key]; l != nil {
			for _, w := range l.waiters[g.id] {
				h.tell(w, w.granted(g))
			}
		}
	}
	for _, key := range e.touched {
		h.reread(key)
	}
	for _, b := range e.broken {
		h.told[place{b.key, b.id}] = true
		h.reread(b.key)
	}
	alarms := h.alarms
	h.mu.Unlock()
	for _, broken := range e.broken {
		for _, a := range alarms {
			a.f(broken.id, broken.gone)
		}
	}
}

// reread makes the line of key be read if anybody waits in it.
func (h *hub) reread(key string) {
	if l := h.lines[key]; l != nil {
		l.unread = true
		h.kickLocked()
	}
}

// unread returns the waiters of each line that must be read now, and when the next
// line is due.
func (h *hub) unread(now time.Time) (lines map[string][]*waiter, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.lines {
		if !l.due.IsZero() && !l.due.After(now) {
			l.unread = true
		}
		if !l.unread {
			if !l.due.IsZero() && (next.IsZero() || l.due.Before(next)) {
				next = l.due
			}
			continue
		}
		l.unread, l.due = false, time.Time{}
		if lines == nil {
			lines = make(map[string][]*waiter)
		}
		ws := make([]*waiter, 0, len(l.waiters))
		for _, mine := range l.waiters {
			ws = append(ws, mine...)
		}
		lines[key] = ws
	}
	return lines, next
}

// Alarm calls f for claims of this Backend that were broken, by whatever process: at
// once if this Backend broke them, or somebody waits in it, and within about a second
// otherwise. While an Alarm is set the database is asked once a second.
func (b *Backend) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	h := &b.hub
	a := &alarm{f}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alarms = append(h.alarms[:len(h.alarms):len(h.alarms)], a)
	h.kickLocked()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		kept := make([]*alarm, 0, len(h.alarms))
		for _, old := range h.alarms {
			if old != a {
				kept = append(kept, old)
			}
		}
		h.alarms = kept
		h.kickLocked()
	}
}
