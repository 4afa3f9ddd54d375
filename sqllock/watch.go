package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// readFor is how long one reading of the database may take.
	readFor = 5 * time.Second
	// lull is how long the watch goes on listening when nobody waits any more.
	lull = time.Second
	// notifyPause is the least time between two readings of the news: a notification concerns
	// every process, and a lock that is handed over ten thousand times a second must not keep
	// all of them busy.
	notifyPause = 200 * time.Microsecond
	// maxNotifyPause bounds the pause that follows a slow reading of the news: most of that
	// time may have been spent waiting.
	maxNotifyPause = 10 * time.Millisecond
	// maxReadPause is the longest that lines are not read because reading them took long.
	maxReadPause = 100 * time.Millisecond
)

// watch tells the waiters of this process how their claims stand. It runs while somebody
// waits or an Alarm is set, and a little longer.
func (b *oldBackend) watch() {
	defer b.calls.Done()
	now := time.Now()
	w := watcher{b: b, active: now, stirred: now, timer: time.NewTimer(0), jitter: 1}
	defer w.timer.Stop()
	defer w.stopNotifier()
	for !w.over() {
		w.startNotifier()
		lines, next := w.readLines()
		w.wait(next, lines == 0)
	}
}

// watcher is the state of the watch.
type watcher struct {
	b        *oldBackend
	notifier notifier  // nil if there is none, or nobody waits
	retryAt  time.Time // when to start one again
	timer    *time.Timer
	jitter   float64       // 0.5 to 1.5, drawn when news were read: processes do not poll in step
	active   time.Time     // when a line was last read, or somebody granted
	stirred  time.Time     // when somebody last joined a line or was granted
	readAt   time.Time     // until when no lines are read
	newsAt   time.Time     // when news were last read
	newsTook time.Duration // how long that took
}

// over reports whether the watch has ended.
func (w *watcher) over() bool {
	closed := w.b.ctx.Err() != nil
	if !closed && (w.b.waiters.waiting() || time.Since(w.active) < lull) {
		return false
	}
	return w.b.waiters.retire(closed)
}

// startNotifier runs the notifier while somebody waits, and on PostgreSQL while an Alarm is
// set. It is called before lines are read: what happens later is notified.
func (w *watcher) startNotifier() {
	switch {
	case w.b.dialect.listen || w.b.waiters.waiting():
		if now := time.Now(); w.notifier == nil && !now.Before(w.retryAt) {
			w.notifier = w.b.store.notifier()
			w.retryAt = now.Add(maxAwait)
		}
	case time.Since(w.active) >= lull:
		w.stopNotifier()
	}
}

func (w *watcher) stopNotifier() {
	if w.notifier != nil {
		w.notifier.close()
		w.notifier = nil
	}
}

// wait waits for something to do, until next at the latest, and reads the news. If
// it may not sleep it only takes what there is, so that lines which must be read all
// the time do not drown the news.
func (w *watcher) wait(next time.Time, sleep bool) {
	now := time.Now()
	until := w.pollAt(now)
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	if !sleep {
		until = now
	}
	var notified <-chan struct{}
	if w.notifier != nil {
		// Reading the news takes a fifth of a processor at most, or is not often.
		ready := w.newsAt.Add(min(max(notifyPause, 4*w.newsTook), maxNotifyPause))
		if !now.Before(ready) {
			notified = w.notifier.notified()
		} else if ready.Before(until) {
			until = ready
		}
	}
	w.timer.Reset(time.Until(until))
	select {
	case _, ok := <-notified:
		if !ok {
			w.stopNotifier()
		}
		w.readNews()
		return
	case <-w.b.waiters.wake:
	case <-w.timer.C:
	case <-w.b.ctx.Done():
	}
	if !w.notifying() && !time.Now().Before(w.pollAt(w.newsAt)) {
		w.readNews()
	}
}

// notifying reports that a notifier is active.
func (w *watcher) notifying() bool { return w.notifier != nil && w.notifier.active() }

// pollAt returns when news are to be read without a notification, if they were last read
// then. With a notifier there is only the end of the lull to wait for.
func (w *watcher) pollAt(then time.Time) time.Time {
	if w.notifying() {
		return then.Add(lull)
	}
	wait := time.Second // for the alarms
	if k := &w.b.dialect; w.b.waiters.waiting() {
		wait = min(max(time.Since(w.stirred)/8, k.minPoll), k.maxPoll)
	}
	return then.Add(time.Duration(w.jitter * float64(wait)))
}

// readLines reads the lines that must be read, and returns how many these were, and when the
// next one is due. Reading takes a fifth of the time at most: a thousand waiters who ask
// again at a thousand moments of each second must not keep the database busy.
func (w *watcher) readLines() (n int, next time.Time) {
	began := time.Now()
	if began.Before(w.readAt) {
		return 0, w.readAt
	}
	lines, next := w.b.waiters.unread(began)
	for key, ws := range lines {
		// That somebody goes on waiting, and says so every second, does not make news more
		// likely; that somebody joined or was granted does.
		if joined := time.Now().Add(-w.b.readLine(key, ws)); joined.After(w.stirred) {
			w.stirred = joined
		}
	}
	if lines != nil {
		w.active = time.Now()
		w.readAt = w.active.Add(min(4*w.active.Sub(began), maxReadPause))
	}
	return len(lines), next
}

// readNews reads what other processes have done, and passes it on.
func (w *watcher) readNews() {
	b := w.b
	ctx, cancel := context.WithTimeout(b.ctx, readFor)
	defer cancel()
	began := time.Now()
	e, err := b.store.news(ctx)
	if err != nil {
		return // the line is read again every second anyway
	}
	if len(e.granted) > 0 {
		w.active = time.Now()
		w.stirred = w.active
	}
	e.broken = b.waiters.unheard(e.broken)
	b.deliver(e)
	w.newsAt, w.jitter = time.Now(), 0.5+rand.Float64()
	w.newsTook = w.newsAt.Sub(began)
}

// readLine reads a line and tells its waiters ws how their claims stand. If somebody has
// expired, it purges the line first: only a step that removes a claim grants its place to
// others, because a renewal that was in time may commit after a mere look. It returns how long
// ago somebody joined the line or was granted.
func (b *oldBackend) readLine(key string, ws []*waiter) (quiet time.Duration) {
	ctx, cancel := context.WithTimeout(b.ctx, readFor)
	defer cancel()
	s, err := b.store.line(ctx, key)
	if err == nil && s.stale() {
		var e effects
		e, err = b.store.purge(ctx, key)
		b.deliver(e)
		if err == nil {
			s, err = b.store.line(ctx, key)
		}
	}
	if errors.As(err, new(standbyError)) || err == nil && s.old(ws) {
		b.askAgain(ctx, ws)
		return lull
	}
	if err != nil {
		for _, w := range ws {
			w.tell(result{err: b.explain(b.ctx, err)})
		}
		return lull
	}
	for _, w := range b.waiters.update(&s, ws) {
		// A reading of the line does not tell all of a grant, nor why a claim is gone.
		g, gone, err := b.store.standing(ctx, &w.t)
		switch {
		case err == errOld || errors.As(err, new(standbyError)):
			b.askAgain(ctx, []*waiter{w})
		case err != nil:
			w.tell(result{err: b.explain(b.ctx, err)})
		case g != nil:
			w.grant(g)
		default:
			w.tell(result{err: gone})
		}
	}
	return s.quiet()
}

// askAgain tells waiters how their claims stand where reads are answered by a server that lags
// behind: it asks by a step that writes, which no such server takes.
func (b *oldBackend) askAgain(ctx context.Context, ws []*waiter) {
	for _, w := range ws {
		t, e, err := b.store.rejoin(ctx, &w.t)
		b.deliver(e)
		if err != nil {
			w.tell(result{err: b.explain(b.ctx, err)})
		} else if t.Granted || time.Since(w.since) >= maxAwait {
			w.tell(result{t: t})
		}
	}
}
