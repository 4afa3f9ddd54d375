package httplock

import (
	"context"
	"net/http"
	"sync"
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
	want    *want
	request *http.Request
	name    string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{}
}

func (w *waits) init(most int) {
	w.most, w.turns, w.of = most, map[string]*turn{}, map[string]int{}
}

// begin counts a call of c for a claim, after an earlier call for it has ended.
func (w *waits) begin(c *call, what *want) (*turn, error) {
	for {
		t, before, err := w.tryBegin(c, what)
		if before == nil {
			return t, err
		}
		before.cancel(errStay)
		select {
		case <-before.done:
		case <-c.Context().Done():
			return nil, errGone
		}
	}
}

// tryBegin returns the call that is before c, if there is one.
func (w *waits) tryBegin(c *call, what *want) (t, before *turn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, before := c.who.name, w.turns[what.id]
	switch {
	case c.s.draining.Err() != nil:
		return nil, nil, comeAgain(1)
	case before != nil && !what.isAs(&before.want.wish):
		return nil, nil, reused().about(what)
	case before != nil:
		return nil, before, nil
	case w.of[name] >= w.most:
		return nil, nil, &problem{slug: slugTooMany, retry: 1,
			detail: "So many of your claims wait at this server that it takes no more; let some of them end first."}
	}
	t = &turn{want: what, request: c.Request, name: name, done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(c.Context())
	w.turns[what.id] = t
	w.of[name]++
	return t, nil, nil
}

func (w *waits) end(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.cancel(nil)
	delete(w.turns, t.want.id)
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

// endIf ends the waiting of the calls for which f returns an error, with that error.
func (w *waits) endIf(f func(*turn) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.turns {
		if err := f(t); err != nil {
			t.cancel(err)
		}
	}
}

// stopAll ends all waiting. The Server drains, so no call begins to wait any more.
func (w *waits) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.turns {
		t.cancel(errStay)
	}
}

// stop ends the waiting of the call for a claim, if there is one, and waits for its end.
func (w *waits) stop(ctx context.Context, id string) error {
	w.mu.Lock()
	t := w.turns[id]
	w.mu.Unlock()
	if t == nil {
		return nil
	}
	t.cancel(errStay)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
