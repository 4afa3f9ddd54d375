package httplock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// waits are the calls of a Server that want a lock, one for each claim.
type waits struct {
	most int // of one principal

	mu    sync.Mutex
	turns map[string]*turn // by the ID of the claim
	of    map[string]int   // by the name of the principal
}

// turn is one call that wants a lock. A later call for the same claim takes its place.
type turn struct {
	id, name   string
	ctx        context.Context
	cancel     context.CancelCauseFunc
	superseded chan struct{} // closed when a later call waits for the end of this one
	done       chan struct{}
	once       sync.Once
}

func (w *waits) init(most int) {
	w.most, w.turns, w.of = most, map[string]*turn{}, map[string]int{}
}

// begin counts a call of c for a claim, after an earlier call for it has ended.
func (w *waits) begin(c *call, id string) (*turn, error) {
	for {
		t, before, err := w.tryBegin(c, id)
		if before == nil {
			return t, err
		}
		before.supersede()
		select {
		case <-before.done:
		case <-c.Context().Done():
			return nil, errGone
		}
	}
}

// tryBegin returns the call that is before c, if there is one.
func (w *waits) tryBegin(c *call, id string) (t, before *turn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.who.name
	switch {
	case c.s.draining.Err() != nil:
		return nil, nil, comeAgain(1)
	case w.turns[id] != nil:
		return nil, w.turns[id], nil
	case w.of[name] >= w.most:
		return nil, nil, &problem{slug: slugTooMany, retry: 1,
			detail: "So many of your claims wait at this server that it takes no more; let some of them end first."}
	}
	t = &turn{id: id, name: name, superseded: make(chan struct{}), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(c.Context())
	w.turns[id] = t
	w.of[name]++
	return t, nil, nil
}

// supersede ends the waiting of a call, and keeps its place.
func (t *turn) supersede() {
	t.once.Do(func() { close(t.superseded) })
	t.cancel(errStay)
}

func (w *waits) end(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.cancel(nil)
	delete(w.turns, t.id)
	if w.of[t.name]--; w.of[t.name] == 0 {
		delete(w.of, t.name)
	}
	close(t.done)
}

func (w *waits) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.turns)
}

// A client that has lost its connection may come again with its claim, here or at another
// Server. So the claim leaves the line a little later.
const (
	withdrawAfter  = time.Second
	withdrawWithin = 5 * time.Second
)

// withdraw takes the claim of a client that has gone out of the line, unless the client has
// come again.
func (s *Server) withdraw(t *turn, w *want) {
	if !s.locks.Detaches() {
		return // the claim left as its context ended
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), withdrawWithin)
	defer cancel()
	before, ok := s.leftOf(ctx, w)
	if !ok {
		return
	}
	began := time.Now()
	timer := time.NewTimer(withdrawAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.draining.Done():
	case <-t.superseded:
		return
	}
	// Nobody renews the claim here. If its lease has not become shorter, another Server has it.
	passed := min(time.Since(began), withdrawAfter) - time.Millisecond
	if now, ok := s.leftOf(ctx, w); !ok || now > before-passed {
		return
	}
	// A try that finds its claim waiting takes the claim out of the line.
	if l, err := w.lock(ctx, s.locks, fencelock.ClaimID(w.id), fencelock.Wait(0)); err == nil {
		_ = l.Release(ctx)
	}
	s.events.changed(w.Key)
}

// leftOf is how long the lease of w's claim lasts, if it is in line.
func (s *Server) leftOf(ctx context.Context, w *want) (time.Duration, bool) {
	l, err := s.locks.Line(ctx, w.Key)
	for _, c := range l.Claims() {
		if c.ID == driver.ShortID(w.id) && err == nil {
			return c.Left, true
		}
	}
	return 0, false
}
