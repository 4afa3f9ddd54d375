package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// earLinger is how long the connection that listens is kept when nobody wants it any
// more: making one costs a server more than keeping it.
const earLinger = time.Minute

// ear runs Options.Listen, again and again, and rings. While it has no connection it
// rings now and then, so that its process asks as if there was no ear.
type ear struct {
	ring  chan struct{}
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
		began := time.Now()
		e.attempt(ctx, channel, listen)
		if time.Since(began) > 10*time.Second {
			wait = 50 * time.Millisecond
		}
		e.ringFor(ctx, wait/2+rand.N(wait))
		wait = min(2*wait, 5*time.Second)
	}
}

// attempt listens once, and rings by itself until LISTEN is in effect.
func (e *ear) attempt(ctx context.Context, channel string, listen listen) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan struct{}, 1)
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		// The error is of no use: the lines are read again anyway, and the next call
		// is not far.
		_ = listen(ctx, channel, func() {
			e.hear()
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-heard:
			<-quit
			return
		case <-quit:
			return
		case <-tick.C:
			e.hear()
			tick.Reset(askServer(time.Second, true, 0.5+rand.Float64()))
		}
	}
}

// ringFor rings now and then for d.
func (e *ear) ringFor(ctx context.Context, d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		tick := time.NewTimer(askServer(time.Second, true, 0.5+rand.Float64()))
		select {
		case <-tick.C:
			e.hear()
		case <-end.C:
			tick.Stop()
			return
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}
