package fencelock

import (
	"container/heap"
	"sync"
	"time"
)

// never is a time that does not come.
const never = int64(1)<<62 - 1

// longestNap bounds how long the timer sleeps while a claim is scheduled. After the
// machine has slept, losses are noticed within this time.
const longestNap = time.Second

// schedule is a heap of the claims that need attention, ordered by the time of their next
// event, and one timer for the earliest. It guards the fields next, slack and index of its
// claims.
type schedule struct {
	clock *clock
	fire  func() // called by the timer; calls earliest until it returns nil

	mu      sync.Mutex
	claims  claimHeap
	timer   *time.Timer
	firesAt int64 // when the timer fires; 0 while fire runs
	stopped bool
}

// put schedules cl, or moves it, for time at. Up to slack earlier, cl may be processed
// together with a claim that is due.
func (s *schedule) put(cl *claim, at, slack, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	cl.next, cl.slack = at, slack
	if cl.index < 0 {
		heap.Push(&s.claims, cl)
	} else {
		heap.Fix(&s.claims, int(cl.index))
	}
	s.setTimerLocked(now)
}

// drop removes cl if it is scheduled.
func (s *schedule) drop(cl *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cl.index >= 0 {
		heap.Remove(&s.claims, int(cl.index))
	}
}

// earliest returns the first claim if it is due, or, with early, due within its slack. The
// claim stays scheduled. The caller puts it at a later time, or drops it.
func (s *schedule) earliest(now int64, early bool) (cl *claim, slack int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.claims) == 0 {
		return nil, 0
	}
	cl = s.claims[0]
	if early {
		slack = cl.slack
	}
	if cl.next > now+slack {
		return nil, 0
	}
	return cl, slack
}

// find returns the scheduled claims that match, in no order. match reads only what never
// changes.
func (s *schedule) find(match func(*claim) bool) []*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*claim
	for _, cl := range s.claims {
		if match(cl) {
			found = append(found, cl)
		}
	}
	return found
}

// stop empties the schedule for good.
func (s *schedule) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, cl := range s.claims {
		cl.index = -1
	}
	s.claims = nil
}

// setTimerLocked makes the timer fire for the first claim.
func (s *schedule) setTimerLocked(now int64) {
	if len(s.claims) == 0 {
		return
	}
	at := min(s.claims[0].next, now+int64(longestNap))
	if at >= s.firesAt {
		return
	}
	s.firesAt = at
	d := max(time.Duration(at-now), shortestTimer)
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.run)
	} else {
		s.timer.Reset(d)
	}
}

// run is the timer's function. The timer is not set before fire has returned, so one run
// never overlaps another.
func (s *schedule) run() {
	s.mu.Lock()
	s.firesAt = 0
	s.mu.Unlock()
	s.fire()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firesAt = never
	s.setTimerLocked(s.clock.now())
}

// claimHeap is the heap of a schedule, for package container/heap.
type claimHeap []*claim

func (h claimHeap) Len() int           { return len(h) }
func (h claimHeap) Less(i, j int) bool { return h[i].next < h[j].next }

func (h claimHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}

func (h *claimHeap) Push(x any) {
	cl := x.(*claim)
	cl.index = int32(len(*h))
	*h = append(*h, cl)
}

func (h *claimHeap) Pop() any {
	last := len(*h) - 1
	cl := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	cl.index = -1
	return cl
}
