package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/storeurl"
)

// quietFor is how many seconds the store may say nothing to one who waits before people
// are told. A call that waits in line answers about every second by itself.
const quietFor = 4

// quiet notes how long the store has said nothing, and what it said last, while a lock is
// waited for. The library rides out every outage, so people would learn of none.
type quiet struct {
	tell  func(format string, args ...any)
	name  string // as it begins a line
	store string

	mu      sync.Mutex
	seconds int         // since the last answer; those in which this process was stopped are one
	last    error       // why there was none since, if known
	refused bool        // the last step that changes something failed
	told    bool        // of this outage
	timer   *time.Timer // nil before begin and after end
}

// begin counts from now.
func (q *quiet) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seconds = 0
	q.timer = time.AfterFunc(time.Second, q.look)
}

// end says nothing more, and returns what is wrong now: "" if nothing is known to be.
func (q *quiet) end() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if !q.told && q.last == nil {
		return ""
	}
	return q.trouble()
}

// lastError is why the store has not answered the last call, if known.
func (q *quiet) lastError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// trouble says what is wrong. q.mu is held.
func (q *quiet) trouble() string {
	if q.last == nil || errors.Is(q.last, context.DeadlineExceeded) {
		return q.store + " gives no answer"
	}
	what := " gives no answer: "
	if storeurl.FromServer(q.last) {
		what = " refuses for now: "
	}
	return q.store + what + cause(q.last)
}

func (q *quiet) look() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer == nil {
		return
	}
	q.timer.Reset(time.Second)
	if q.seconds++; q.seconds >= quietFor && !q.told {
		q.told = true
		q.tell("%s%s; asking again", q.name, q.trouble())
	}
}

// heard takes in the answer to a call. One that only looks is no sign that the store takes
// what is written.
func (q *quiet) heard(err error, looks bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled): // it was cut short by us
	case !isAnswer(err):
		q.last = err
		q.refused = q.refused || !looks
	case looks && q.refused:
	default:
		q.seconds, q.last, q.refused = 0, nil, false
		if q.told && q.timer != nil {
			q.told = false
			q.tell("%s%s answers again", q.name, q.store)
		}
	}
}

// isAnswer reports whether the store has answered, with whatever.
func isAnswer(err error) bool {
	return err == nil || errors.As(err, new(*driver.BusyError)) || errors.Is(err, driver.ErrKind) || driver.Gone(err)
}

// listened is a backend whose answers are noted. What it lacks of the optional interfaces
// is for processes that hand on their grants.
type listened struct {
	driver.Backend
	driver.LineReader
	q *quiet
}

type ringer interface{ driver.Alarm }

// listen notes in q what b answers.
func listen(b driver.Backend, q *quiet) driver.Backend {
	lines, ok := b.(driver.LineReader)
	if !ok {
		return b
	}
	l := listened{b, lines, q}
	if r, ok := b.(ringer); ok {
		return struct {
			listened
			ringer
		}{l, r}
	}
	return l
}

func (l listened) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := l.Backend.Enter(ctx, c)
	l.q.heard(err, false)
	return t, err
}

func (l listened) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	t, err := l.Backend.Await(ctx, t)
	l.q.heard(err, true)
	return t, err
}

func (l listened) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := l.Backend.Renew(ctx, ts)
	for _, err := range errs {
		l.q.heard(err, false)
	}
	return errs
}
