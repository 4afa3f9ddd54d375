package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// subscriber is the notifier on PostgreSQL. It runs Options.Listen again and again, and
// passes its notifications on. While it has no connection, its process polls.
type subscriber struct {
	events chan struct{}
	turn   atomic.Int64 // of Listen, from 1
	heard  atomic.Int64 // the turn that was last heard of: LISTEN is in effect if it is not over
	stop   context.CancelFunc
	again  atomic.Pointer[context.CancelFunc] // ends the turn
	done   chan struct{}
}

// notifier starts a subscriber for this node, or returns nil.
func (p *postgres) notifier() notifier {
	if p.listen == nil {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &subscriber{events: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	s.turn.Store(1)
	go s.run(ctx, strings.ToLower(p.names.prefix)+strconv.FormatInt(p.node, 10), p.listen)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = s
	return s
}

func (p *postgres) relisten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		if end := p.listener.again.Load(); end != nil {
			(*end)()
		}
	}
}

func (s *subscriber) notified() <-chan struct{} { return s.events }
func (s *subscriber) active() bool              { return s.heard.Load() == s.turn.Load() }

// close waits until Options.Listen has returned.
func (s *subscriber) close() {
	s.stop()
	<-s.done
}

// run listens until ctx ends.
func (s *subscriber) run(ctx context.Context, channel string, listen listen) {
	defer close(s.done)
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	wait := shortest
	for ctx.Err() == nil {
		began, turn := time.Now(), s.turn.Load()
		// The error is of no use: the server is polled meanwhile, and the next turn is near.
		during, end := context.WithCancel(ctx)
		s.again.Store(&end)
		_ = listen(during, channel, func() {
			s.heard.Store(turn)
			signal(s.events)
		})
		end()
		s.turn.Add(1)
		signal(s.events)
		if time.Since(began) > 10*time.Second {
			wait = shortest
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
		}
		wait = min(2*wait, longest)
	}
}
