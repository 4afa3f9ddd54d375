package swapsql

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

// A client that waits for one key reads the line with its news, so that the next holder need not read it to leave.
// Where there are leases of claims that came behind others, a reading of its own has them.
var pollSQL = `SELECT {hex}l.lock_key{/hex}, l.news,
	CASE WHEN EXISTS (SELECT 1 FROM fencelock_lease WHERE of_key = l.lock_key AND ending > 0) THEN 1 ELSE 0 END,
	{now}, l.version, l.last, {hex}l.mark{/hex}, {hex}l.marked_by{/hex}, {hex}l.holder{/hex}, l.expires, l.open_until,
	l.capacity, CASE WHEN l.version > ?{int} THEN l.line ELSE '' END,
	CASE WHEN l.version > ?{int} THEN substr(l.arrivals, 1, ` + strconv.Itoa(readMost+1) + `) ELSE '' END
FROM fencelock_swap l WHERE l.lock_key IN (%s) AND {alone} LIMIT 1000`

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
	// mostKnown is how many arrivals of a line are read with its news.
	mostKnown = 16
)

// watch is one Watch.
type watch struct {
	s       *Store
	waiting func() map[string]string
	hear    func(key string, news []swaplock.News)
	stirred time.Time // when a line was last seen to change
	rested  time.Time // when a notification may cause the next look

	told map[string]int64 // the versions of keys of which all news was told
}

// Watch looks again and again whether the lines have changed for which somebody waits: when a notification
// arrives, or by polling where there is none, one small statement for all keys.
func (s *Store) Watch(ctx context.Context, waiting func() map[string]string,
	hear func(key string, news []swaplock.News)) error {
	w := &watch{s: s, waiting: waiting, hear: hear, stirred: time.Now(), told: map[string]int64{}}
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
	maps.DeleteFunc(w.told, func(key string, _ int64) bool { _, ok := known[key]; return !ok })
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(known)), mostAtOnce) {
		most := int64(math.MaxInt64) // the version of which the line is known
		if v, err := readVersion(known[keys[0]]); err == nil && len(keys) == 1 {
			most = v.number
		}
		args := []any{most, most}
		for _, key := range keys {
			args = append(args, []byte(key))
		}
		q := w.s.statement("look for news", "", strings.Replace(pollSQL, "%s",
			strings.Repeat("?, ", len(keys)-1)+"?", 1), args...)
		q.Row = func(scan func(to ...any) error) error {
			var key []byte
			var news string
			var leases int
			var r lineRow
			err := scan(append([]any{w.s.bytes(&key), &news, &leases}, r.columns(w.s)...)...)
			number := r.number.Int64
			seen, bad := readVersion(known[string(key)])
			if bad != nil || seen.opening != q.Opening { // another file may have smaller numbers
				seen.number = 0
				delete(w.told, string(key))
			}
			// A standby that lags behind may answer. What it says is not news.
			if seen.number = max(seen.number, w.told[string(key)]); err == nil && seen.number < number {
				w.stirred, w.told[string(key)] = time.Now(), number
				var line *swaplock.State
				if leases == 0 && number > most {
					st, err := w.s.state(string(key), &r, mostKnown, true, q.Opening)
					if err == nil && (len(st.Arrivals) > 0 || !st.More) {
						line = &st
					}
				}
				w.tell(string(key), seen.number, number, news, line)
			}
			return err
		}
		if _, err := w.s.conns.Run(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// tell tells the news of key between two versions, if that is known.
func (w *watch) tell(key string, from, to int64, text string, line *swaplock.State) {
	if news, ok := untold(text, from, to); !ok {
		w.hear(key, nil)
	} else if len(news) > 0 {
		for i := range news {
			news[i].State = line
		}
		w.hear(key, news)
	}
}

// told is a swap's part of the column news, which has those of some swaps before it behind it: a client that polls
// need not read the line to see that it has nothing to do with what has happened there.
func told(number int64, c *swaplock.Change) string {
	if len(c.Document) == 0 {
		return ""
	}
	b := append(strconv.AppendInt(make([]byte, 0, 90), number, 10), ' ')
	for _, n := range c.News {
		b = append(append(append(strconv.AppendInt(b, n.Token, 10), ':'), n.Grant...), ',')
	}
	return string(append(b, ';'))
}

// untold reads the news of all versions behind from, up to to, in their order.
func untold(text string, from, to int64) (news []swaplock.News, ok bool) {
	for ; to > from; to-- {
		part, rest, whole := strings.Cut(text, ";")
		number, all, _ := strings.Cut(part, " ")
		if !whole || number != strconv.FormatInt(to, 10) {
			return nil, false
		}
		var some []swaplock.News
		for one := range strings.SplitSeq(all, ",") {
			if token, grant, more := strings.Cut(one, ":"); more {
				n, err := strconv.ParseInt(token, 10, 64)
				if err != nil {
					return nil, false
				}
				some = append(some, swaplock.News{Token: n, Grant: grant})
			}
		}
		news, text = append(some, news...), rest
	}
	return news, true
}

// channel is what a process listens to.
func (s *Store) channel(node string) string { return strings.ToLower(s.o.Prefix) + "news_" + node }

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
		l.run(ctx, s.channel(s.node), s.o.Listen)
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
