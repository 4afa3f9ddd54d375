package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// subscriberLinger is how long the connection that listens is kept when nobody wants it any
// more: making one costs a server more than keeping it.
const subscriberLinger = time.Minute

// subscriber runs Options.Listen again and again, and publishes its notifications. While it
// has no connection, its process polls.
type subscriber struct {
	events chan struct{}
	turn   atomic.Int64 // of Listen, from 1
	heard  atomic.Int64 // the turn that was last heard of: LISTEN is in effect if it is not over
	stop   context.CancelFunc
	done   chan struct{}
	users  int         // notifiers in use
	quiet  *time.Timer // ends it when it has had no users for a while
}

// notifier starts a notifier for this node, or returns nil.
func (p *postgres) notifier() notifier {
	if p.config.listen == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.subscriber
	if e == nil {
		ctx, stop := context.WithCancel(context.Background())
		e = &subscriber{events: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
		e.turn.Store(1)
		channel := strings.ToLower(p.names.prefix) + strconv.FormatInt(p.node, 10)
		go e.run(ctx, channel, p.config.listen)
		p.subscriber = e
	} else {
		// What was notified while nobody waited is still to be read.
		e.publish()
	}
	e.users++
	if e.quiet != nil {
		e.quiet.Stop()
	}
	return &subscription{p, e}
}

// subscription is one use of the subscriber.
type subscription struct {
	p *postgres
	e *subscriber
}

func (b *subscription) notified() <-chan struct{} { return b.e.events }
func (b *subscription) active() bool              { return b.e.heard.Load() == b.e.turn.Load() }

func (b *subscription) close() {
	p, e := b.p, b.e
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	if e.users > 0 || p.subscriber != e {
		return
	}
	e.quiet = time.AfterFunc(subscriberLinger, func() {
		p.mu.Lock()
		idle := p.subscriber == e && e.users == 0
		if idle {
			p.subscriber = nil
		}
		p.mu.Unlock()
		if idle {
			e.end()
		}
	})
}

// end ends the subscriber and waits until Options.Listen has returned.
func (e *subscriber) end() {
	e.stop()
	<-e.done
	if e.quiet != nil {
		e.quiet.Stop()
	}
}

func (e *subscriber) publish() {
	select {
	case e.events <- struct{}{}:
	default: // an event is pending
	}
}

// run listens until ctx ends.
func (e *subscriber) run(ctx context.Context, channel string, listen listen) {
	defer close(e.done)
	wait := 50 * time.Millisecond
	for ctx.Err() == nil {
		began, turn := time.Now(), e.turn.Load()
		// The error is of no use: the server is asked meanwhile, and the next turn is not
		// far.
		_ = listen(ctx, channel, func() {
			e.heard.Store(turn)
			e.publish()
		})
		e.turn.Add(1)
		e.publish()
		if time.Since(began) > 10*time.Second {
			wait = 50 * time.Millisecond
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, 5*time.Second)
	}
}
