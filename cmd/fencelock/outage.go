package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/storeurl"
)

// silenceBeforeNotice is how many seconds the store may give no answer before people are
// told. A call that waits in line answers about every second by itself.
const silenceBeforeNotice = 4

// outageMonitor sees every answer of the store while a lock is waited for, and tells
// people of an outage. The library rides out every outage, so nobody else would.
type outageMonitor struct {
	notify func(format string, args ...any)
	name   string // as it begins a line
	store  string

	mu      sync.Mutex
	seconds int         // since the last answer; those in which this process was stopped are one
	last    error       // why there was none since, if known
	refused bool        // the last call that writes failed
	told    bool        // of this outage
	timer   *time.Timer // nil before begin and after end
}

// begin counts from now.
func (m *outageMonitor) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seconds = 0
	m.timer = time.AfterFunc(time.Second, m.tick)
}

// end tells nothing more, and returns the present trouble: "" if none is known.
func (m *outageMonitor) end() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	if !m.told && m.last == nil {
		return ""
	}
	return m.store + trouble(m.last)
}

// lastError is why the store has not answered the last call, if known.
func (m *outageMonitor) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// trouble says what is wrong with a store, after its name.
func trouble(last error) string {
	switch {
	case errors.Is(last, driver.ErrRefused):
		return " refuses for now: " + cause(last)
	case last == nil || errors.Is(last, context.DeadlineExceeded):
		return " gives no answer"
	case storeurl.FromServer(last):
		return " answers with an error: " + cause(last)
	}
	return " gives no answer: " + cause(last)
}

// tick counts one second.
func (m *outageMonitor) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer == nil {
		return
	}
	m.timer.Reset(time.Second)
	if m.seconds++; m.seconds >= silenceBeforeNotice && !m.told {
		m.told = true
		m.notify("%s%s%s; asking again", m.name, m.store, trouble(m.last))
	}
}

// observe takes the answer to a call. An answer to a call that only reads does not show
// that the store takes what is written.
func (m *outageMonitor) observe(err error, reads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled): // this process cut it short
	case !isAnswer(err):
		m.last = err
		m.refused = m.refused || !reads
	case reads && m.refused:
	default:
		m.seconds, m.last, m.refused = 0, nil, false
		if m.told && m.timer != nil {
			m.told = false
			m.notify("%s%s answers again", m.name, m.store)
		}
	}
}

// isAnswer reports whether the store has answered, with whatever.
func isAnswer(err error) bool {
	return err == nil || errors.As(err, new(*driver.BusyError)) || errors.Is(err, driver.ErrKind) || driver.Gone(err)
}

// observed is a backend whose answers an outageMonitor sees. Of the optional interfaces it
// has those that a process with one claim uses.
type observed struct {
	driver.Backend
	monitor *outageMonitor
	waiting *waitingLine // nil if there is none
}

type (
	alarm    interface{ driver.Alarm }
	detacher interface{ driver.Detacher }
)

// observe shows m and w what b answers.
func observe(b driver.Backend, m *outageMonitor, w *waitingLine) driver.Backend {
	o := observed{b, m, w}
	a, alarms := b.(driver.Alarm)
	d, detaches := b.(driver.Detacher)
	switch {
	case alarms && detaches:
		return struct {
			observed
			alarm
			detacher
		}{o, a, d}
	case alarms:
		return struct {
			observed
			alarm
		}{o, a}
	case detaches:
		return struct {
			observed
			detacher
		}{o, d}
	}
	return o
}

// seen returns the backend that an outageMonitor sees; history is kept there.
func (o observed) seen() driver.Backend { return o.Backend }

func (o observed) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := o.Backend.Enter(ctx, c)
	o.monitor.observe(err, false)
	o.waiting.observe(t, err)
	return t, err
}

func (o observed) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	t, err := o.Backend.Await(ctx, t)
	o.monitor.observe(err, true)
	o.waiting.observe(t, err)
	return t, err
}

func (o observed) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := o.Backend.Renew(ctx, ts)
	for _, err := range errs {
		o.monitor.observe(err, false)
	}
	return errs
}
