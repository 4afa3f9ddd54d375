package fencelock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// EventType names what has happened, such as "at risk".
type EventType string

// The types of an event.
const (
	EventWaiting        EventType = "waiting"                // a call waits: in line, or behind a call of this process
	EventAcquired       EventType = "acquired"               // a lease was granted
	EventRefused        EventType = "refused"                // a call ended without a lease
	EventRenewed        EventType = "renewed"                // a lease was renewed
	EventAtRisk         EventType = "at risk"                // a renewal failed, a lease has a third left, or it stalls
	EventRevoked        EventType = "revoked"                // a holder has heard of a Break with notice
	EventLost           EventType = "lost"                   // a lease ended before its holder did
	EventReleased       EventType = "released"               // a lease was released; Err if that is not confirmed yet
	EventHandleReleased EventType = "released by its handle" // a detached lease was released by its handle
	EventBroke          EventType = "broken"                 // this Client broke a claim
	EventWarning        EventType = "warning"                // an operator should see Err
	EventClosed         EventType = "client closed"          // the last event of a Client that is closed
)

// Event describes what happened to a claim or a call. A field that does not apply is zero;
// the comment of the field names the types that set it.
type Event struct {
	Type    EventType
	Context context.Context // of the call that took the lease, or waits for it; nil for a warning of no call
	Time    time.Time
	Key     string

	// Standing describes the claim: its Kind, Permits, Size, Owner, Note, Trace and Token. Left is
	// set by Renewed (what was left as the store responded), AtRisk (what is left now), Revoked (what
	// is left of the notice) and Broke (the notice).
	Standing

	Wait    uint64        // Waiting, and the Acquired or Refused that ends it: its number in this Client; else 0
	Took    time.Duration // Acquired, Refused: from the call to its end; Lost, Released: from the grant to its end
	Handoff bool          // Acquired: passed on inside this process, without the store
	HeldBy  *HeldError    // Waiting, Refused: the holder, as far as known; Acquired: the holder as the wait began
	Err     error         // Refused, AtRisk, Lost, Released (if not confirmed), Warning: why
	Reason  string        // Broke, Revoked, Lost: the reason that was given for a break, or what is known of the loss
	Dropped uint64        // events lost before this one, because OnEvent was too slow
}

// LogEvents returns an Options.OnEvent that writes every event to l: losses as errors, risks,
// requests and warnings as warnings, the rest at debug level.
func LogEvents(l *slog.Logger) func(Event) {
	return func(e Event) {
		ctx := e.Context
		if ctx == nil {
			ctx = context.Background()
		}
		level := levelOf(e.Type)
		if !l.Enabled(ctx, level) {
			return
		}
		var attrs []slog.Attr
		add := func(given bool, a slog.Attr) {
			if given {
				attrs = append(attrs, a)
			}
		}
		add(e.Key != "", slog.String("key", e.Key))
		add(e.Token != 0, slog.String("token", e.Token.String()))
		add(e.Took != 0, slog.Duration("took", e.Took))
		add(e.Left != 0, slog.Duration("left", e.Left))
		add(e.Handoff, slog.Bool("handoff", true))
		add(e.Dropped != 0, slog.Uint64("dropped", e.Dropped))
		if e.HeldBy != nil {
			attrs = append(attrs, slog.String("held_by", e.HeldBy.Error()))
		}
		add(e.Reason != "" && e.Err == nil, slog.String("reason", e.Reason))
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		l.LogAttrs(ctx, level, "lock "+string(e.Type), attrs...)
	}
}

// levelOf returns how important an event is in a log.
func levelOf(t EventType) slog.Level {
	switch t {
	case EventLost:
		return slog.LevelError
	case EventAtRisk, EventRevoked, EventBroke, EventWarning:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// sendWaiting reports once that the call waits, and for whom.
func (a *acquisition) sendWaiting(inTheWay func() *HeldError) {
	events := &a.c.events
	if a.waitNumber != 0 || events.on == nil {
		return
	}
	a.waitNumber = a.c.waits.Add(1)
	e := a.event()
	e.Wait, e.HeldBy = a.waitNumber, inTheWay()
	if e.HeldBy.Token != 0 {
		a.inTheWay = e.HeldBy
	}
	events.send(EventWaiting, e)
}

// firstInLine returns who held the key in the last response of the store.
func (a *acquisition) firstInLine() *HeldError { return a.heldBy(a.blocker) }

// send reports an event of the grant of l, which fill completes. The mutex of the claim is held.
func (l *Lease) send(t EventType, fill func(*Event)) {
	cl := l.claim
	if cl.c.events.on == nil {
		return
	}
	e := Event{Context: l.ctx.parent, Key: cl.key}
	rare := cl.readRare()
	e.Token, e.Owner, e.Note, e.Trace = l.token, rare.owner, rare.note, rare.trace
	e.setKind(int64(cl.capacity), int64(cl.weight))
	fill(&e)
	cl.c.events.send(t, e)
}

// sendEnd reports that the grant of l has ended at time now: EventReleased or EventLost.
func (l *Lease) sendEnd(t EventType, now int64, err error) {
	l.send(t, func(e *Event) {
		e.Time = time.Now().Add(time.Duration(now - l.claim.c.clock.Now())) // the store's response took time
		e.Took, e.Err = time.Duration(now-l.at), err
		var loss *lossError
		if errors.As(err, &loss) {
			e.Reason = loss.detail
		}
	})
}

// sendAtRisk reports how much of the lease is left.
func (l *Lease) sendAtRisk(now int64, err error) {
	l.send(EventAtRisk, func(e *Event) {
		e.Left, e.Err = time.Duration(l.claim.deadline.Load()-now), err
	})
}

// maxEvents bounds how many events wait for a slow OnEvent.
const maxEvents = 4096

// dispatcher calls OnEvent with one event after another. Its goroutine ends when no event
// waits, so an idle Client has none.
type dispatcher struct {
	on     func(Event) // nil: no events are wanted
	owner  string
	warned sync.Map // texts of the warnings sent so far

	mu      sync.Mutex
	queue   []Event
	dropped uint64
	running chan struct{} // closed when the goroutine ends; nil while none runs
}

// send queues one event. It may be called under any lock of the core.
func (d *dispatcher) send(t EventType, e Event) {
	if d.on == nil {
		return
	}
	e.Type, e.Owner = t, cmp.Or(e.Owner, d.owner)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxEvents {
		d.dropped++
		return
	}
	e.Time = cmp.Or(e.Time, time.Now())
	e.Dropped, d.dropped = d.dropped, 0
	d.queue = append(d.queue, e)
	if d.running == nil {
		d.running = make(chan struct{})
		go d.run()
	}
}

func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			close(d.running)
			d.queue, d.running = nil, nil
			d.mu.Unlock()
			return
		}
		e := d.queue[0]
		d.queue[0] = Event{}
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.on(e)
	}
}

// warnOnce sends a warning unless the same text was sent before.
func (d *dispatcher) warnOnce(e Event, err error) {
	if d.on == nil {
		return
	}
	if _, sent := d.warned.LoadOrStore(err.Error(), true); !sent {
		e.Err = err
		d.send(EventWarning, e)
	}
}

// drain waits until no event is left, and at most for limit: OnEvent may have called Close,
// and then Close waits for it.
func (d *dispatcher) drain(limit time.Duration) {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	if running == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-running:
	case <-t.C:
	}
}
