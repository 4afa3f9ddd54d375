package quorumlock

import (
	"math/bits"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// alarm notifies one subscriber of claims that were broken on so many nodes that no
// majority is left.
type alarm struct {
	notify func(id string, gone driver.GoneError)
	spare  int

	mu    sync.Mutex
	heard map[alarmed]uint16 // the set of nodes that have notified
}

// alarmed is a claim that was broken, or is under notice.
type alarmed struct {
	id     string
	notice bool
}

// Alarm calls f when so many members have said that a claim was broken, or is under notice, that it
// has no majority left. Members without alarms count as silent.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	a := &alarm{notify: f, spare: b.spare, heard: map[alarmed]uint16{}}
	var stops []func()
	for i, n := range b.nodes {
		if member, ok := n.Member.(driver.Alarm); ok {
			hear := func(memberID string, gone driver.GoneError) { a.hear(i, memberID, gone) }
			stops = append(stops, member.Alarm(hear))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// maxHeard bounds the memory of alarms. They are hints: the next renewal says the same.
const maxHeard = 10_000

// hear notes that node i has notified of a claim.
func (a *alarm) hear(i int, memberID string, gone driver.GoneError) {
	dot := strings.LastIndexByte(memberID, '.')
	if dot < 0 {
		return
	}
	id := alarmed{memberID[:dot], gone.Left > 0}
	a.mu.Lock()
	if len(a.heard) > maxHeard {
		clear(a.heard)
	}
	before := a.heard[id]
	now := before | 1<<i
	a.heard[id] = now
	a.mu.Unlock()
	if bits.OnesCount16(before) <= a.spare && bits.OnesCount16(now) > a.spare {
		a.notify(id.id, gone)
	}
}
