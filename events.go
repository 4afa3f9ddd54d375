package fencelock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/dispatch"
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
	// is left of the notice) and Broke (the notice). Reason is set by Broke, Revoked and Lost: the
	// reason that was given for a break, or what is known of the loss.
	Standing

	Wait    uint64        // Waiting, and the Acquired or Refused that ends it: its number in this Client; else 0
	Took    time.Duration // Acquired, Refused: from the call to its end; Lost, Released: from the grant to its end
	Handoff bool          // Acquired: passed on inside this process, without the store
	HeldBy  *HeldError    // Waiting, Refused: the holder, as far as known; Acquired: the holder as the wait began
	Err     error         // Refused, AtRisk, Lost, Released (if not confirmed), Warning: why
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
		add(e.HeldBy != nil, slog.Any("held_by", e.HeldBy))
		add(e.Reason != "" && e.Err == nil, slog.String("reason", e.Reason))
		add(e.Err != nil, slog.Any("error", e.Err))
		l.LogAttrs(ctx, level, "lock "+string(e.Type), attrs...)
	}
}

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
	if a.waitNumber != 0 || events.On == nil {
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

func (a *acquisition) firstInLine() *HeldError { return a.heldBy(a.blocker) }

// send reports an event of the grant of l, which fill completes. The mutex of the claim is held.
func (l *Lease) send(t EventType, fill func(*Event)) {
	cl := l.claim
	if cl.c.events.On == nil {
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

func (l *Lease) sendAtRisk(now int64, err error) {
	l.send(EventAtRisk, func(e *Event) {
		e.Left, e.Err = time.Duration(l.claim.deadline.Load()-now), err
	})
}

// dispatcher calls OnEvent with one event after another.
type dispatcher struct {
	dispatch.Dispatcher[Event]
	owner  string
	warned sync.Map // texts of the warnings sent so far
}

// send queues one event. It may be called under any lock of the core.
func (d *dispatcher) send(t EventType, e Event) {
	e.Type, e.Owner = t, cmp.Or(e.Owner, d.owner)
	d.Send(e, func(e *Event, dropped uint64) { e.Time, e.Dropped = cmp.Or(e.Time, time.Now()), dropped })
}

// warnOnce sends a warning unless the same text was sent before.
func (d *dispatcher) warnOnce(e Event, err error) {
	if d.On == nil {
		return
	}
	if _, sent := d.warned.LoadOrStore(err.Error(), true); !sent {
		e.Err = err
		d.send(EventWarning, e)
	}
}
