// Package agenda calls a function when the first of many items is due, with one timer for all.
package agenda

import (
	"container/heap"
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

// Entry is the place of one item in an Agenda, which guards it. Its zero value is not scheduled.
type Entry struct {
	next  int64 // when the item is due
	slack int64 // how much earlier it may be processed
	place int32 // in the heap, from 1 on; 0 if it is not scheduled
}

// Agenda is a heap of items, ordered by the time when they are due, and one timer for the
// earliest. The zero value is ready once Start was called.
type Agenda[T Item] struct {
	clock *clock.Clock
	fire  func()

	mu      sync.Mutex
	items   items[T]
	timer   *time.Timer
	firesAt int64 // when the timer fires; 0 while fire runs
	stopped bool
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
	e.next, e.slack = at, slack
	if e.place == 0 {
		heap.Push(&s.items, x)
	} else {
		heap.Fix(&s.items, int(e.place)-1)
	}
	s.setTimer(now)
}

// Drop removes x if it is scheduled.
func (s *Agenda[T]) Drop(x T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := x.Entry(); e.place > 0 {
		heap.Remove(&s.items, int(e.place)-1)
	}
}

// Earliest returns the first item if it is due, or, with early, due within its slack, and else
// the zero value. The item stays scheduled. The caller puts it at a later time, or drops it.
func (s *Agenda[T]) Earliest(now int64, early bool) (x T, slack int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) == 0 {
		return x, 0
	}
	first := s.items[0]
	e := first.Entry()
	if early {
		slack = e.slack
	}
	if e.next > now+slack {
		return x, 0
	}
	return first, slack
}

// Find returns the scheduled items that match, in no order. match reads only what never changes.
func (s *Agenda[T]) Find(match func(T) bool) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []T
	for _, x := range s.items {
		if match(x) {
			found = append(found, x)
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
	for _, x := range s.items {
		x.Entry().place = 0
	}
	s.items = nil
}

// setTimer makes the timer fire for the first item. The mutex is held.
func (s *Agenda[T]) setTimer(now int64) {
	if len(s.items) == 0 {
		return
	}
	at := min(s.items[0].Entry().next, now+int64(longestNap))
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

// items is the heap of an Agenda, for package container/heap.
type items[T Item] []T

func (h items[T]) Len() int           { return len(h) }
func (h items[T]) Less(i, j int) bool { return h[i].Entry().next < h[j].Entry().next }

func (h items[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Entry().place, h[j].Entry().place = int32(i)+1, int32(j)+1
}

func (h *items[T]) Push(x any) {
	item := x.(T)
	*h = append(*h, item)
	item.Entry().place = int32(len(*h))
}

func (h *items[T]) Pop() any {
	var none T
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = none
	*h = (*h)[:last]
	x.Entry().place = 0
	return x
}
