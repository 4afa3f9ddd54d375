package swapsql

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

const pollSQL = `SELECT {hex}lock_key{/hex}, version FROM fencelock_swap WHERE lock_key IN (%s) AND {alone} LIMIT 1000`

// How often the lines are looked at for which somebody waits: often while a hand-over is likely, which is
// soon after the last one, and ever less so. A wait is prolonged by an eighth of itself, up to longestPoll of the
// dialect.
const (
	shortestPoll = 2 * time.Millisecond
	// heardPause is the least time between two looks that notifications cause, and longestPause the longest: four
	// times what the last one took. A notification concerns every process, and a lock that is handed over ten
	// thousand times a second must not keep all of them busy.
	heardPause   = 200 * time.Microsecond
	longestPause = 10 * time.Millisecond
	// lookFor is how long a look may take: a connection may be dead.
	lookFor = 5 * time.Second
)

// watch is one Watch.
type watch struct {
	s       *Store
	waiting func() map[string]string
	hear    func(key string, news []swaplock.News)
	stirred time.Time // when a line was last seen to change
	rested  time.Time // when a notification may cause the next look
}

// Watch looks again and again whether the lines have changed for which somebody waits: when a notification
// arrives, or by polling where there is none, one small statement for all keys.
func (s *Store) Watch(ctx context.Context, waiting func() map[string]string,
	hear func(key string, news []swaplock.News)) error {
	w := &watch{s: s, waiting: waiting, hear: hear, stirred: time.Now()}
	l := s.listen(ctx)
	defer l.stop()
	hear("", nil)
	for {
		heard, err := w.pause(ctx, l)
		if err != nil {
			return err
		}
		if heard && l.begins() {
			hear("", nil) // what was told before it listened is lost
		}
		began := time.Now()
		if err := w.look(ctx); err != nil {
			return err
		}
		now := time.Now()
		w.rested = now.Add(min(max(heardPause, 4*now.Sub(began)), longestPause))
	}
}

// pause waits until it is time to look again.
func (w *watch) pause(ctx context.Context, l *listener) (heard bool, err error) {
	wait := min(max(time.Since(w.stirred)/8, shortestPoll), w.s.d.longestPoll)
	if l.active.Load() {
		wait = time.Second
	}
	t := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(wait)))
	defer t.Stop()
	select {
	case <-l.heard:
		time.Sleep(time.Until(w.rested))
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// look reads the versions of the keys for which somebody waits, and tells of those that have changed.
func (w *watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	known := w.waiting()
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(known)), mostAtOnce) {
		args := make([]any, len(keys))
		for i, key := range keys {
			args[i] = []byte(key)
		}
		q := w.s.statement("look for news", "", strings.Replace(pollSQL, "%s",
			strings.Repeat("?, ", len(keys)-1)+"?", 1), args...)
		q.Row = func(scan func(to ...any) error) error {
			var key []byte
			var number int64
			err := scan(w.s.bytes(&key), &number)
			// A standby that lags behind may answer. What it says is not news.
			seen, bad := readVersion(known[string(key)])
			if err == nil && (bad != nil || seen.number < number || seen.opening != q.Opening) {
				w.stirred = time.Now()
				w.hear(string(key), nil)
			}
			return err
		}
		if _, err := w.s.conns.Run(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) channel() string { return strings.ToLower(s.o.Prefix) + "news" }

// listener runs Options.Listen again and again.
type listener struct {
	heard  chan struct{} // has room for one
	active atomic.Bool   // LISTEN is in effect
	begun  atomic.Bool   // LISTEN has begun since begins was called
	stop   func()
}

// listen starts a listener. Without Options.Listen it never hears anything.
func (s *Store) listen(ctx context.Context) *listener {
	l := &listener{heard: make(chan struct{}, 1), stop: func() {}}
	if s.o.Listen == nil {
		return l
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	l.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		l.run(ctx, s.channel(), s.o.Listen)
	}()
	return l
}

func (l *listener) run(ctx context.Context, channel string,
	listen func(ctx context.Context, channel string, heard func()) error) {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	for wait := shortest; ctx.Err() == nil; wait = min(2*wait, longest) {
		began, first := time.Now(), true
		// The error is of no use: the database is polled meanwhile, and the next turn is near.
		_ = listen(ctx, channel, func() {
			if first {
				l.active.Store(true)
				l.begun.Store(true)
				first = false
			}
			select {
			case l.heard <- struct{}{}:
			default:
			}
		})
		l.active.Store(false)
		if time.Since(began) > 10*time.Second {
			wait = shortest
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
		}
	}
}

// begins reports whether LISTEN has begun since it was called last.
func (l *listener) begins() bool { return l.begun.Swap(false) }
