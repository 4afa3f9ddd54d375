package redislock

import (
	"context"
	"math/rand/v2"
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
	// resubscribe is about the pause between two attempts to subscribe, at first; it
	// doubles up to resubscribeMax.
	resubscribe    = 50 * time.Millisecond
	resubscribeMax = 2 * time.Second
)

// subscriber has the one subscription of a Backend. It starts when a claim first waits,
// or soon after the first grant if a caller wants alarms. It lasts until Close.
//
// A script that grants or breaks claims publishes to the channel of each process
// concerned (an ID has its length and a colon in front, and nothing is between the parts):
//
//	g length-of-mark : mark id id id …    granted
//	b id reason                           broken
//	l id                                  look again
//
// All of these are hints: what was missed is read again.
type subscriber struct {
	b       *Backend
	silence time.Duration

	// epoch counts the confirmed subscriptions; it is 0 while there is none. What
	// was read from the server under the present one has missed no message.
	epoch  atomic.Uint64
	ctx    context.Context // ended by close
	cancel context.CancelFunc

	begin   sync.Once // what begins keep, or close
	count   uint64    // of epochs; only keep touches it
	running sync.WaitGroup
}

func (s *subscriber) init(b *Backend) {
	s.b, s.silence = b, silence
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// open subscribes, unless that was done before.
func (s *subscriber) open() {
	s.begin.Do(func() { s.running.Go(s.keep) })
}

// close ends the subscription and waits for its goroutines, but not for a network
// that hangs.
func (s *subscriber) close() {
	s.begin.Do(func() {}) // after this open begins nothing
	s.cancel()
	soon, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = inTime(soon, func() error {
		s.running.Wait()
		return nil
	})
}

// keep subscribes again and again until close.
func (s *subscriber) keep() {
	pause := resubscribe
	for s.ctx.Err() == nil {
		if s.receive(s.ctx) {
			pause = resubscribe
		}
		s.setEpoch(0)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-s.ctx.Done():
		}
		pause = min(2*pause, resubscribeMax)
	}
}

// subscribe subscribes until hangUp, or until ctx ends.
func (s *subscriber) subscribe(ctx context.Context) (ps *redis.PubSub, hangUp func()) {
	ps = s.b.rdb.Subscribe(ctx, s.b.channel)
	stop := context.AfterFunc(ctx, func() { _ = ps.Close() })
	return ps, func() {
		stop()
		_ = ps.Close()
	}
}

// hasRoom reports whether the server takes one more connection. A waiter can do without a subscription, and a holder
// whose connection broke cannot do without one more: the last place of a server that is full (maxclients) is its.
func (s *subscriber) hasRoom(ctx context.Context) bool {
	spare, hangUp := s.subscribe(ctx)
	defer hangUp()
	_, err := spare.ReceiveTimeout(ctx, s.silence)
	return err == nil
}

// receive subscribes, and handles messages until the connection breaks. It reports
// whether the subscription was confirmed.
func (s *subscriber) receive(ctx context.Context) (confirmed bool) {
	ps, hangUp := s.subscribe(ctx)
	defer hangUp()
	asked := false
	for {
		got, err := ps.ReceiveTimeout(ctx, s.silence)
		switch {
		case err == nil:
			asked = false
		case ctx.Err() == nil && confirmed && !asked && isTimeout(err):
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
			if m.Kind != "subscribe" {
				continue
			}
			if !confirmed && !s.hasRoom(ctx) {
				return false
			}
			confirmed = true
			s.confirmed()
		case *redis.Message:
			s.handle(m.Payload)
		}
	}
}

// confirmed begins an epoch: whoever waits reads its line once.
func (s *subscriber) confirmed() {
	s.count++
	s.setEpoch(s.count)
}

// setEpoch wakes each Await.
func (s *subscriber) setEpoch(epoch uint64) {
	if s.epoch.Swap(epoch) != epoch {
		s.b.waiters.wakeAll()
	}
}

// handle acts on one message. One that makes no sense is dropped, as if it were lost.
func (s *subscriber) handle(message string) {
	if message == "" {
		return
	}
	kind, f := message[0], fields{rest: message[1:]}
	switch kind {
	case 'g':
		mark := f.prefixed()
		for f.rest != "" && !f.bad {
			id := f.prefixed()
			s.b.waiters.notify(id, func(w *waiter) {
				w.granted, w.mark = true, mark
			})
		}
	case 'b':
		if id := f.prefixed(); !f.bad {
			s.b.broken(id, driver.GoneError{Reason: f.rest, Broken: true})
		}
	case 'n':
		id := f.prefixed()
		if notice, ok := parseNotice(f.rest); ok && !f.bad {
			s.b.broken(id, notice)
		}
	case 'l':
		s.b.waiters.notify(f.prefixed(), func(w *waiter) { w.stale = true })
	}
}
