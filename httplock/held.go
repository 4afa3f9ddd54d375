package httplock

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// held are the leases that a Server has granted, as far as it knows. It decides nothing but
// how many one principal may have.
type held struct {
	s *Server

	mu sync.Mutex
	of map[string]map[string]time.Time // deadlines by the name of the principal, and the handle
}

func (h *held) init(s *Server) { h.s, h.of = s, map[string]map[string]time.Time{} }

// add notes a lease, or its later deadline.
func (h *held) add(name, handle string, deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[name] == nil {
		h.of[name] = map[string]time.Time{}
	}
	h.of[name][handle] = deadline
}

// renewed notes a later deadline of a lease that this Server has granted.
func (h *held) renewed(name, handle string, deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.of[name][handle]; ok {
		h.of[name][handle] = deadline
	}
}

// has reports whether this Server has granted the handle to name.
func (h *held) has(name, handle string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.of[name][handle]
	return ok
}

func (h *held) remove(name, handle string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of[name], handle)
	if len(h.of[name]) == 0 {
		delete(h.of, name)
	}
}

// lookedAtOnce is how many of the oldest leases are looked at when there seems to be no room.
const lookedAtOnce = 32

// room refuses a principal that holds too much. Another Server may have released what was
// granted here, so the oldest leases are looked at first.
func (h *held) room(c *call, w *want) error {
	name := c.who.name
	if h.count(name) < h.s.o.MaxHeld {
		return nil
	}
	for _, handle := range h.oldest(name) {
		_, err := h.s.locks.Detached(fencelock.Handle(handle)).Check(c.Context())
		if errors.Is(err, fencelock.ErrLost) {
			h.remove(name, handle)
		}
	}
	if h.count(name) < h.s.o.MaxHeld {
		return nil
	}
	return (&problem{slug: slugTooMany, retry: 1,
		detail: "You hold as many locks through this server as it allows; release some of them first."}).about(w)
}

// count returns how many leases name has. It forgets those that have run out.
func (h *held) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.of[name]) >= h.s.o.MaxHeld {
		h.forgetLocked(name)
	}
	return len(h.of[name])
}

func (h *held) forgetLocked(name string) {
	now := time.Now()
	for handle, deadline := range h.of[name] {
		if now.After(deadline) {
			delete(h.of[name], handle)
		}
	}
}

func (h *held) oldest(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]string, 0, len(h.of[name]))
	for handle := range h.of[name] {
		all = append(all, handle)
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(h.of[name][a].Compare(h.of[name][b]), cmp.Compare(a, b))
	})
	return all[:min(len(all), lookedAtOnce)]
}

// len returns how many leases have not run out. It forgets the others.
func (h *held) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for name := range h.of {
		h.forgetLocked(name)
		n += len(h.of[name])
		if len(h.of[name]) == 0 {
			delete(h.of, name)
		}
	}
	return n
}
