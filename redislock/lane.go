package redislock

import (
	"slices"
	"sync"
	"time"
)

const (
	// flights is how many requests of one lane are under way at a time while all
	// goes well: while one is answered, the next is filled.
	flights = 2
	// flightsMax is how many there may be if some do not come back.
	flightsMax = 16
	// overdue is how long a flight is under way when it counts as stuck.
	overdue = 20 * time.Millisecond
	// seats bounds the steps in one request.
	seats = 200
)

// lane is the queue for one server. A server that hangs holds up its own lane.
type lane struct {
	sender *sender
	mu     sync.Mutex
	queue  []*step
	under  []*flight   // under way
	late   *time.Timer // runs while somebody waits for a seat
	spare  *flight     // one that is over, for the next
}

// flight is one request, or several one after the other.
type flight struct {
	since time.Time // when the present one was sent
}

// depart begins a flight if there may be another; nil if not. It is called under mu.
func (l *lane) depart() *flight {
	now := time.Now()
	if len(l.under) >= flights && l.moving(now) >= flights || len(l.under) >= flightsMax {
		return nil
	}
	f := l.spare
	if l.spare = nil; f == nil {
		f = &flight{}
	}
	f.since = now
	l.under = append(l.under, f)
	return f
}

// moving counts the flights that are not stuck.
func (l *lane) moving(now time.Time) (n int) {
	for _, f := range l.under {
		if now.Sub(f.since) < overdue {
			n++
		}
	}
	return n
}

// board takes a seat in a flight that leaves now, or waits for the next.
func (l *lane) board(st *step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		if f := l.depart(); f != nil {
			go l.shuttle(f, []*step{st})
			return
		}
		l.watch()
	}
	l.queue = append(l.queue, st)
}

// claim takes the place of a flight for the caller, who must land; nil if there is
// none.
func (l *lane) claim() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.depart()
}

// land lets those who wait go on without the caller.
func (l *lane) land(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if steps := l.next(f); steps != nil {
		go l.shuttle(f, steps)
	}
}

// shuttle flies until nobody waits.
func (l *lane) shuttle(f *flight, steps []*step) {
	for steps != nil {
		l.sender.fly(steps)
		l.mu.Lock()
		steps = l.next(f)
		l.mu.Unlock()
	}
}

// next is called when a flight is back. It returns who goes next, or ends the
// flight if nobody waits, or if there are too many that move. It is called under mu.
func (l *lane) next(f *flight) []*step {
	f.since = time.Now()
	if len(l.queue) > 0 && l.moving(f.since) <= flights {
		return l.take()
	}
	l.under = slices.DeleteFunc(l.under, func(o *flight) bool { return o == f })
	l.spare = f
	return nil
}

// take empties the queue into one flight. It is called under mu.
func (l *lane) take() []*step {
	n := min(len(l.queue), seats)
	taken := l.queue[:n:n]
	if n == len(l.queue) {
		l.queue = nil
		l.late.Stop()
	} else {
		l.queue = l.queue[n:]
		l.late.Reset(overdue)
	}
	return taken
}

// watch makes sure that whoever waits is seen to, though the flights under way may
// be stuck on connections that are dead. It is called under mu.
func (l *lane) watch() {
	if l.late == nil {
		l.late = time.AfterFunc(overdue, l.rescue)
		return
	}
	l.late.Reset(overdue)
}

func (l *lane) rescue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return
	}
	if f := l.depart(); f != nil {
		go l.shuttle(f, l.take())
		return
	}
	l.late.Reset(overdue)
}
