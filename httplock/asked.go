package httplock

import (
	"sync"
	"time"
)

// wish is the lock that a request_id asks for.
type wish struct {
	kind          string
	permits, size int64
	slot          *time.Time // of once; the zero time is once forever
}

// isAs reports whether w and other, which have one request_id, may be one request.
func (w *wish) isAs(other *wish) bool {
	return w.kind == other.kind && w.permits == other.permits && w.size == other.size &&
		(w.slot == nil) == (other.slot == nil)
}

const (
	askedKept = 15 * time.Minute // as long as a request_id that is spent is refused
	askedMost = 10_000
)

// asked remembers what the requests of clients were for, also after their claims have left the
// line: for askedKept after the last request, or for askedMost other requests.
type asked struct {
	mu          sync.Mutex
	now, before map[string]wish // by the ID of the claim
	since       time.Time       // of now
}

// settle gives w the slot of the first request with its request_id, and refuses a w that wants
// something else than that request.
func (a *asked) settle(w *want) error {
	if !w.named {
		return nil // no other request has its request_id
	}
	first := a.first(w.id, w.wish)
	if !w.isAs(&first) {
		return reused().about(w)
	}
	w.slot = first.slot
	return nil
}

// forget is for a w that the store has refused, because an earlier request at another Server has
// its request_id.
func (a *asked) forget(w *want) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.now, w.id)
	delete(a.before, w.id)
}

func (a *asked) first(id string, w wish) wish {
	a.mu.Lock()
	defer a.mu.Unlock()
	if age := time.Since(a.since); age > askedKept || len(a.now) >= askedMost {
		a.before, a.now, a.since = a.now, map[string]wish{}, time.Now()
		if age > 2*askedKept {
			a.before = nil
		}
	}
	if f, ok := a.now[id]; ok {
		return f
	}
	if f, ok := a.before[id]; ok {
		w = f
	}
	a.now[id] = w
	return w
}
