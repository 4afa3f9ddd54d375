// Package agenda calls a function when the first of many items is due, with one timer for all.
package agenda

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
)

// longestNap bounds how long the timer sleeps while an item is scheduled. After the machine has
// slept, what is due is noticed within this time.
const longestNap = time.Second

// An Item can be scheduled by an Agenda.
type Item interface {
	comparable
	Entry() *Entry
}

// Entry is the place of one item in the heap of an Agenda, which guards it: from 1 on, 0 if the
// item is not scheduled.
type Entry struct{ place int32 }

// Agenda is a heap of items, ordered by the time when they are due, and one timer for the
// earliest. The zero value is ready once Start was called.
type Agenda[T Item] struct {
	clock *clock.Clock
	fire  func()

	mu      sync.Mutex
	heap    []slot[T]
	timer   *time.Timer
	firesAt int64 // when the timer fires; 0 while fire runs
	stopped bool
}

// slot has the times of an item, so that comparing two does not fetch the items. With package
// container/heap, which needs an interface for them, BenchmarkHeldLease takes 30 % more.
type slot[T Item] struct {
	next  int64 // when the item is due
	slack int64 // how much earlier it may be processed
	item  T
}

// Start prepares the agenda. fire is called by the timer, and calls Earliest until it returns
// the zero value.
func (s *Agenda[T]) Start(c *clock.Clock, fire func()) {
	s.clock, s.fire, s.firesAt = c, fire, clock.Never
}

// Put schedules x, or moves it, for time at. Up to slack earlier, x may be processed together
// with an item that is due.
func (s *Agenda[T]) Put(x T, at, slack, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	e := x.Entry()
	if e.place == 0 {
		s.heap = append(s.heap, slot[T]{})
		e.place = int32(len(s.heap))
	}
	s.settle(int(e.place)-1, slot[T]{at, slack, x})
	s.setTimer(now)
}

// Drop removes x if it is scheduled.
func (s *Agenda[T]) Drop(x T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := x.Entry()
	if e.place == 0 {
		return
	}
	i, last := int(e.place)-1, len(s.heap)-1
	e.place = 0
	moved := s.heap[last]
	s.heap[last] = slot[T]{}
	s.heap = s.heap[:last]
	if i < last {
		s.settle(i, moved)
	}
}

// Earliest returns the first item if it is due, or, with early, due within its slack, and else
// the zero value. The item stays scheduled. The caller puts it at a later time, or drops it.
func (s *Agenda[T]) Earliest(now int64, early bool) (x T, slack int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heap) == 0 {
		return x, 0
	}
	first := &s.heap[0]
	if early {
		slack = first.slack
	}
	if first.next > now+slack {
		return x, 0
	}
	return first.item, slack
}

// Find returns the scheduled items that match, in no order. match reads only what never changes.
func (s *Agenda[T]) Find(match func(T) bool) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []T
	for _, x := range s.heap {
		if match(x.item) {
			found = append(found, x.item)
		}
	}
	return found
}

// Stop empties the agenda for good.
func (s *Agenda[T]) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, x := range s.heap {
		x.item.Entry().place = 0
	}
	s.heap = nil
}

// setTimer makes the timer fire for the first item. The mutex is held.
func (s *Agenda[T]) setTimer(now int64) {
	if len(s.heap) == 0 {
		return
	}
	at := min(s.heap[0].next, now+int64(longestNap))
	if at >= s.firesAt {
		return
	}
	s.firesAt = at
	d := max(time.Duration(at-now), clock.Shortest)
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.run)
	} else {
		s.timer.Reset(d)
	}
}

// run is the timer's function. The timer is not set before fire has returned, so one run
// never overlaps another.
func (s *Agenda[T]) run() {
	s.mu.Lock()
	s.firesAt = 0
	s.mu.Unlock()
	s.fire()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firesAt = clock.Never
	s.setTimer(s.clock.Now())
}

// settle puts x into place i, which is free, or higher or lower, so that no slot is due before
// the one above it. The mutex is held.
func (s *Agenda[T]) settle(i int, x slot[T]) {
	h := s.heap
	for i > 0 && x.next < h[(i-1)/2].next {
		s.set(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		below := 2*i + 1
		if below+1 < len(h) && h[below+1].next < h[below].next {
			below++
		}
		if below >= len(h) || x.next <= h[below].next {
			break
		}
		s.set(i, h[below])
		i = below
	}
	s.set(i, x)
}

func (s *Agenda[T]) set(i int, x slot[T]) {
	s.heap[i] = x
	x.item.Entry().place = int32(i) + 1
}
