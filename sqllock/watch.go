package sqllock

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// lookFor is how long one look at the database may take.
	lookFor = 5 * time.Second
	// lull is how long the watch goes on listening when nobody waits any more.
	lull = time.Second
	// notifyPause is the least time between two readings of the news: a notification concerns
	// every process, and a lock that is handed over ten thousand times a second must not keep
	// all of them busy.
	notifyPause = 200 * time.Microsecond
	// maxNotifyPause bounds the pause that follows a slow reading of the news: most of that
	// time may have been spent waiting.
	maxNotifyPause = 10 * time.Millisecond
	// longestRest is the longest that lines are not read because reading them took long.
	longestRest = 100 * time.Millisecond
)

// watch tells the waiters of this process where they stand. It runs while somebody
// waits or an Alarm is set, and a little longer.
func (b *Backend) watch() {
	defer b.calls.Done()
	now := time.Now()
	w := watcher{b: b, last: now, stirred: now, timer: time.NewTimer(0), dice: 1, met: make(map[place]time.Time)}
	defer w.timer.Stop()
	defer w.stopNotifier()
	for !w.over() {
		w.startNotifier()
		lines, next := w.look()
		w.listen(next, lines == 0)
	}
}

// watcher is the state of the watch.
type watcher struct {
	b        *Backend
	notifier notifier  // nil if there is none, or nobody waits
	retryAt  time.Time // when to start one again
	timer    *time.Timer
	dice     float64             // thrown each time that news were read; see dialect.ask
	last     time.Time           // when a line was last read, or somebody granted
	stirred  time.Time           // when somebody was last granted by others, or joined a line
	met      map[place]time.Time // who was seen waiting, and when last
	kept     int                 // how many of them were left when those who wait no more were forgotten
	rest     time.Time           // until when no lines are read
	heard    time.Time           // when news were last read
	took     time.Duration       // how long that took
}

// over reports whether the watch has ended.
func (w *watcher) over() bool {
	if w.b.ctx.Err() == nil && (w.b.hub.waiting() || time.Since(w.last) < lull) {
		return false
	}
	return w.b.hub.retire()
}

// startNotifier runs the notifier while somebody waits, and only then unless the dialect keeps
// it. It is called before lines are read: what happens later is notified.
func (w *watcher) startNotifier() {
	switch {
	case w.b.dialect.keep || w.b.hub.waiting():
		if now := time.Now(); w.notifier == nil && !now.Before(w.retryAt) {
			w.notifier = w.b.store.notifier()
			w.retryAt = now.Add(maxAwait)
		}
	case time.Since(w.last) >= lull:
		w.stopNotifier()
	}
}

func (w *watcher) stopNotifier() {
	if w.notifier != nil {
		w.notifier.close()
		w.notifier = nil
	}
}

// listen waits for something to do, until next at the latest, and hears the news. If
// it may not sleep it only hears what there is, so that lines which must be read all
// the time do not drown the news.
func (w *watcher) listen(next time.Time, sleep bool) {
	now := time.Now()
	until := w.ask(now)
	if !next.IsZero() {
		until = earlier(until, next)
	}
	if !sleep {
		until = now
	}
	var notified <-chan struct{}
	if w.notifier != nil {
		// Reading the news takes a fifth of a processor at most, or is not often.
		if ready := w.heard.Add(min(max(notifyPause, 4*w.took), maxNotifyPause)); now.Before(ready) {
			until = earlier(until, ready)
		} else {
			notified = w.notifier.notified()
		}
	}
	w.timer.Reset(time.Until(until))
	select {
	case _, ok := <-notified:
		if !ok {
			w.stopNotifier()
		}
		w.hear()
		return
	case <-w.b.hub.wake:
	case <-w.timer.C:
	case <-w.b.ctx.Done():
	}
	if now = time.Now(); !w.notifying() && !now.Before(w.ask(w.heard)) {
		w.hear()
	}
}

// notifying reports that a notifier is active.
func (w *watcher) notifying() bool { return w.notifier != nil && w.notifier.active() }

// ask returns when news is asked for without a notifier, if it was then heard last. With
// one there is only the end of the lull to wait for.
func (w *watcher) ask(heard time.Time) time.Time {
	if w.notifying() {
		return heard.Add(lull)
	}
	return heard.Add(w.b.dialect.ask(time.Since(w.stirred), w.b.hub.waiting(), w.dice))
}

// look reads the lines that must be read, and returns how many these were, and when the
// next one is due. Reading takes a fifth of the time at most: a thousand waiters who ask
// again at a thousand moments of each second must not keep the database busy.
func (w *watcher) look() (n int, next time.Time) {
	began := time.Now()
	if began.Before(w.rest) {
		return 0, w.rest
	}
	lines, next := w.b.hub.unread(began)
	for key, ws := range lines {
		w.b.look(key, ws)
		w.meet(key, ws)
	}
	if lines != nil {
		w.last = time.Now()
		w.rest = w.last.Add(min(4*w.last.Sub(began), longestRest))
	}
	return len(lines), next
}

// meet notes who waits in a line. That somebody goes on waiting, and says so every
// second, does not make news more likely; that somebody joined does.
func (w *watcher) meet(key string, ws []*waiter) {
	now := time.Now()
	for _, one := range ws {
		p := place{key, one.t.ID}
		if _, known := w.met[p]; !known {
			w.stirred = now
		}
		w.met[p] = now
	}
	if len(w.met) < 2*w.kept+1000 {
		return
	}
	for p, seen := range w.met {
		if now.Sub(seen) > 10*maxAwait {
			delete(w.met, p) // it would have asked again since
		}
	}
	w.kept = len(w.met)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// hear reads the news from other processes and passes them on.
func (w *watcher) hear() {
	b := w.b
	ctx, cancel := context.WithTimeout(b.ctx, lookFor)
	defer cancel()
	began := time.Now()
	e, err := b.store.news(ctx)
	if err != nil {
		return // the line is read again every second anyway
	}
	if len(e.granted) > 0 {
		w.last = time.Now()
		w.stirred = w.last
	}
	b.hub.mu.Lock()
	e.broken = b.hub.fresh(e.broken)
	b.hub.mu.Unlock()
	b.hub.deliver(e)
	w.heard, w.dice = time.Now(), 0.5+rand.Float64()
	w.took = w.heard.Sub(began)
}

// fresh returns those broken claims that the alarms have not heard of.
func (h *hub) fresh(all []broken) (fresh []broken) {
	told := make(map[place]bool, len(all))
	for _, b := range all {
		p := place{b.key, b.id}
		if !h.told[p] {
			fresh = append(fresh, b)
		}
		told[p] = true
	}
	h.told = told
	return fresh
}

// look reads a line and tells its waiters where they stand. If somebody has expired,
// it purges the line first: only a step that removes a claim grants its place to
// others, because a renewal that was in time may commit after a mere look.
func (b *Backend) look(key string, ws []*waiter) {
	ctx, cancel := context.WithTimeout(b.ctx, lookFor)
	defer cancel()
	q, err := b.store.queue(ctx, key)
	if err == nil && q.stale {
		var e effects
		e, err = b.store.purge(ctx, key)
		b.deliver(e)
		if err == nil {
			q, err = b.store.queue(ctx, key)
		}
	}
	h := &b.hub
	if err != nil {
		err = b.explain(b.ctx, err)
		for _, w := range ws {
			h.settle(w, verdict{err: err})
		}
		return
	}
	h.mu.Lock()
	granted, missing, soonest := q.judge(ws)
	if l := h.lines[key]; l != nil && soonest < maxAwait {
		l.due = time.Now().Add(soonest)
	}
	for _, w := range ws {
		if w.late && w.read {
			h.tell(w, verdict{t: w.t})
		}
	}
	h.mu.Unlock()
	for _, w := range granted {
		h.settle(w, b.granted(ctx, w, q.mixed))
	}
	for _, w := range missing {
		h.settle(w, b.gone(ctx, w))
	}
}

// granted asks for what a look does not read of a grant.
func (b *Backend) granted(ctx context.Context, w *waiter, mixed bool) verdict {
	g, ok, err := b.store.grantOf(ctx, w.t.Key, w.t.ID)
	switch {
	case err != nil:
		return verdict{err: b.explain(b.ctx, err)}
	case !ok:
		return b.gone(ctx, w) // since the look
	}
	g.mixed = mixed
	return w.granted(g)
}

// gone asks why a claim is not in line.
func (b *Backend) gone(ctx context.Context, w *waiter) verdict {
	gone, err := b.store.why(ctx, w.t.Key, w.t.ID)
	if err != nil {
		return verdict{err: b.explain(b.ctx, err)}
	}
	return verdict{err: gone}
}
