package redislock

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

const (
	// silence is how long the subscription may be silent before it is asked whether
	// it is still there, and how long it may take to answer that.
	silence = 3 * time.Second
	// resubscribe is the pause between two attempts to subscribe, at first; it
	// doubles up to resubscribeMax.
	resubscribe    = 50 * time.Millisecond
	resubscribeMax = 2 * time.Second
	// settle is how long a claim has to be held before somebody who listens for
	// alarms is worth a subscription.
	settle = 100 * time.Millisecond
	// unheardMax bounds the claims that are looked at once the subscription is there.
	unheardMax = 1000
)

// ear is the one subscription of a Backend. It starts when a claim first waits, or
// when somebody who listens for alarms has held one for a moment, and lasts until
// Close.
//
// A script that grants or breaks claims publishes to the channel of each process
// concerned (ids are written as in the store, and nothing is between the parts):
//
//	g length-of-mark : mark id id id …    granted
//	m length-of-mark : mark id id id …    granted, and two sizes are in use
//	b id reason                           broken
//	l id                                  look again
//
// All of that are hints; what was missed is read again.
type ear struct {
	b       *Backend
	channel string
	silence time.Duration

	// epoch counts the confirmed subscriptions; it is 0 while there is none. What
	// was read from the server under the present one has missed no message.
	epoch    atomic.Uint64
	opened   atomic.Bool
	alarming atomic.Bool
	done     chan struct{} // closed by close

	mu      sync.Mutex
	closed  bool
	count   uint64        // of epochs
	changed chan struct{} // closed when epoch changes
	cancel  context.CancelFunc
	running sync.WaitGroup
	alarms  []*alarm
	settled *time.Timer       // runs out when a subscription may be worth it
	unheard map[string]string // id → key of claims that may have been broken unheard
	reading map[string]string // those of them that are being looked at
	rung    map[string]bool   // ids of those that turned out to be broken
}

func (e *ear) init(b *Backend) {
	e.b, e.channel, e.silence = b, b.channel, silence
	e.done = make(chan struct{})
	e.changed = make(chan struct{})
}

// open subscribes, unless that was done before.
func (e *ear) open() {
	if e.opened.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.opened.Load() {
		return
	}
	e.opened.Store(true)
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	e.running.Go(func() { e.listen(ctx) })
}

// close ends the subscription and waits for its goroutines, but not for a network
// that hangs.
func (e *ear) close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	close(e.done)
	if e.settled != nil {
		e.settled.Stop()
	}
	if e.cancel != nil {
		e.cancel()
	}
	e.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		e.running.Wait()
		close(ended)
	}()
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
}

// state returns the epoch, and what is closed when it changes.
func (e *ear) state() (epoch uint64, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch.Load(), e.changed
}

// listen keeps the subscription until ctx ends.
func (e *ear) listen(ctx context.Context) {
	pause := resubscribe
	for ctx.Err() == nil {
		if e.session(ctx) {
			pause = resubscribe
		}
		e.lost()
		rest := time.NewTimer(pause)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
		}
		pause = min(2*pause, resubscribeMax)
	}
}

// session subscribes, and hears messages until the connection breaks. It reports
// whether the subscription was confirmed.
func (e *ear) session(ctx context.Context) (confirmed bool) {
	ps := e.b.rdb.Subscribe(ctx, e.channel)
	hangUp := sync.OnceFunc(func() { _ = ps.Close() })
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	asked := false
	for {
		got, err := ps.ReceiveTimeout(ctx, e.silence)
		switch {
		case err == nil:
			asked = false
		case ctx.Err() == nil && confirmed && !asked && isLate(err):
			// A connection may be dead without a sign.
			if ps.Ping(ctx) != nil {
				return confirmed
			}
			asked = true
			continue
		default:
			return confirmed
		}
		switch m := got.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				confirmed = true
				e.confirmed(ctx)
			}
		case *redis.Message:
			e.hear(m.Payload)
		}
	}
}

// confirmed begins an epoch: whoever waits reads its standing once.
func (e *ear) confirmed(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	e.turn(e.count)
	if len(e.unheard) > 0 && len(e.reading) == 0 {
		e.reading, e.unheard = e.unheard, nil
		unheard := maps.Clone(e.reading)
		e.running.Go(func() { e.catchUp(ctx, unheard) })
	}
}

func (e *ear) lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn(0)
}

// turn sets the epoch. It is called under mu.
func (e *ear) turn(epoch uint64) {
	if e.epoch.Swap(epoch) == epoch {
		return
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// hear acts on one message. One that makes no sense is dropped, as one that was
// lost.
func (e *ear) hear(message string) {
	if message == "" {
		return
	}
	kind, rest := message[0], message[1:]
	switch kind {
	case 'g', 'm':
		mark, rest, ok := cutText(rest)
		if !ok {
			return
		}
		for rest != "" {
			var id string
			if id, rest, ok = cutText(rest); !ok {
				return
			}
			e.b.waits.hear(id, func(w *wait) {
				w.granted, w.mark, w.mixed = true, driver.Mark(mark), kind == 'm'
			})
		}
	case 'b':
		if id, reason, ok := cutText(rest); ok {
			e.broken(id, driver.ErrGone{Reason: reason, Broken: true}, false)
		}
	case 'l':
		if id, _, ok := cutText(rest); ok {
			e.b.waits.hear(id, func(w *wait) { w.stale = true })
		}
	}
}

// cutText reads a text that stands behind its length.
func cutText(s string) (text, rest string, ok bool) {
	length, rest, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
