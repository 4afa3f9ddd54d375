package quorumlock

import (
	"math/bits"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// alarms notifies subscribers of claims that were broken on so many members that no
// majority is left. The zero value is ready.
type alarms struct {
	subscribers driver.Alarms

	mu    sync.Mutex
	heard map[string]uint16 // by claim, the set of nodes that have notified
	stops []func()          // of the subscriptions to the members; nil if there are none
}

// Alarm calls f when so many members have said that a claim was broken that it has no
// majority left. Members without alarms count as silent.
func (b *Backend) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	a := &b.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	unsubscribe := a.subscribers.Subscribe(f)
	if a.stops == nil && b.invalid.Load() == nil {
		for i, n := range b.nodes {
			if member, ok := n.Member.(driver.Alarm); ok {
				a.stops = append(a.stops, member.Alarm(func(memberID string, gone driver.ErrGone) {
					b.notify(i, memberID, gone)
				}))
			}
		}
	}
	return func() {
		a.mu.Lock()
		unsubscribe()
		var stops []func()
		if a.subscribers.Len() == 0 {
			stops, a.stops = a.stops, nil
		}
		a.mu.Unlock()
		stopAll(stops)
	}
}

// close ends the subscriptions to the members.
func (a *alarms) close() {
	a.mu.Lock()
	stops := a.stops
	a.stops = nil
	a.mu.Unlock()
	stopAll(stops)
}

// stopAll is called without a lock: a member may be notifying, which takes alarms.mu.
func stopAll(stops []func()) {
	for _, stop := range stops {
		stop()
	}
}

// notify counts the alarm of node i.
func (b *Backend) notify(i int, memberID string, gone driver.ErrGone) {
	dot := strings.LastIndexByte(memberID, '.')
	if dot < 0 {
		return
	}
	id := memberID[:dot]
	spare := len(b.nodes) - b.majority
	before, now := b.alarms.hear(id, i)
	if before <= spare && now > spare {
		b.alarms.subscribers.Notify(id, gone)
	}
}

// maxHeard bounds the memory of alarms. They are hints: the next renewal says the same.
const maxHeard = 10_000

// hear notes that node i has notified of a claim, and returns how many nodes had and
// have.
func (a *alarms) hear(id string, i int) (before, now int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == nil || len(a.heard) > maxHeard {
		a.heard = map[string]uint16{}
	}
	was := a.heard[id]
	a.heard[id] = was | 1<<i
	return bits.OnesCount16(was), bits.OnesCount16(a.heard[id])
}
