package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// earLinger is how long the connection that listens is kept when nobody wants it any
// more: making one costs a server more than keeping it.
const earLinger = time.Minute

// ear runs Options.Listen, again and again, and rings. While it has no connection it
// says so, and its process asks as if there was no ear.
type ear struct {
	ring  chan struct{}
	turn  atomic.Int64 // of Listen, from 1
	heard atomic.Int64 // the turn that was last heard of: LISTEN is in effect if it is not over
	stop  context.CancelFunc
	done  chan struct{}
	users int         // bells that hang
	quiet *time.Timer // ends it when it has had no users for a while
}

// listen returns a bell that rings when this node is notified, or nil.
func (p *postgres) listen() bell {
	if p.config.listen == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.ear
	if e == nil {
		ctx, stop := context.WithCancel(context.Background())
		e = &ear{ring: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
		e.turn.Store(1)
		channel := strings.ToLower(p.names.prefix) + strconv.FormatInt(p.node, 10)
		go e.run(ctx, channel, p.config.listen)
		p.ear = e
	} else {
		// What was rung while no bell hung is still to be heard.
		e.hear()
	}
	e.users++
	if e.quiet != nil {
		e.quiet.Stop()
	}
	return &earBell{p, e}
}

// earBell is one use of the ear.
type earBell struct {
	p *postgres
	e *ear
}

func (b *earBell) rings() <-chan struct{} { return b.e.ring }
func (b *earBell) hears() bool            { return b.e.heard.Load() == b.e.turn.Load() }

func (b *earBell) close() {
	p, e := b.p, b.e
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	if e.users > 0 || p.ear != e {
		return
	}
	e.quiet = time.AfterFunc(earLinger, func() {
		p.mu.Lock()
		idle := p.ear == e && e.users == 0
		if idle {
			p.ear = nil
		}
		p.mu.Unlock()
		if idle {
			e.end()
		}
	})
}

// end ends the ear and waits until Options.Listen has returned.
func (e *ear) end() {
	e.stop()
	<-e.done
	if e.quiet != nil {
		e.quiet.Stop()
	}
}

func (e *ear) hear() {
	select {
	case e.ring <- struct{}{}:
	default: // it rings already
	}
}

// run listens until ctx ends.
func (e *ear) run(ctx context.Context, channel string, listen listen) {
	defer close(e.done)
	wait := 50 * time.Millisecond
	for ctx.Err() == nil {
		began, turn := time.Now(), e.turn.Load()
		// The error is of no use: the server is asked meanwhile, and the next turn is not
		// far.
		_ = listen(ctx, channel, func() {
			e.heard.Store(turn)
			e.hear()
		})
		e.turn.Add(1)
		e.hear()
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
