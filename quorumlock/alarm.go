package quorumlock

import (
	"slices"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// alarms hears of claims that were broken on members, and passes on what is true of a
// majority.
type alarms struct {
	mu        sync.Mutex
	listeners []*listener
	stops     []func()
	heard     map[string]uint16 // nodes that have rung, by claim
}

type listener struct {
	f func(id string, gone driver.ErrGone)
}

// Alarm calls f when so many members have said that a claim was broken that it has no
// majority left. Members that cannot say so are not heard.
func (b *Backend) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	l := &listener{f}
	a := &b.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, l)
	if a.stops == nil {
		a.heard = map[string]uint16{}
		for i, n := range b.nodes {
			if rings, ok := n.Member.(driver.Alarm); ok && b.bad == nil {
				a.stops = append(a.stops, rings.Alarm(func(id string, gone driver.ErrGone) { b.ring(i, id, gone) }))
			}
		}
	}
	return func() {
		a.mu.Lock()
		a.listeners = slices.DeleteFunc(a.listeners, func(x *listener) bool { return x == l })
		last := len(a.listeners) == 0
		a.mu.Unlock()
		if last {
			a.close()
		}
	}
}

// close ends the alarms of the members.
func (a *alarms) close() {
	a.mu.Lock()
	stops := a.stops
	a.stops = nil
	a.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// ring counts a member's alarm.
func (b *Backend) ring(i int, memberID string, gone driver.ErrGone) {
	dot := strings.LastIndexByte(memberID, '.')
	if dot < 0 {
		return
	}
	id := memberID[:dot]
	a := &b.alarms
	a.mu.Lock()
	before := a.heard[id]
	now := before | 1<<i
	if len(a.heard) > 10000 {
		clear(a.heard) // hints of hints: the next renewal says the same
	}
	a.heard[id] = now
	var listeners []*listener
	if count(now) > len(b.nodes)-b.majority && count(before) <= len(b.nodes)-b.majority {
		listeners = slices.Clone(a.listeners)
	}
	a.mu.Unlock()
	for _, l := range listeners {
		l.f(id, gone)
	}
}

func count(set uint16) int {
	n := 0
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}
