package fencelock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// Event is what a hook is told. Fields that do not apply are zero.
type Event struct {
	Time    time.Time
	Key     string
	Owner   string // this Client's
	Token   fence.Token
	Waited  time.Duration // Acquired, Refused: from the call to the answer
	Held    time.Duration // Lost, Released: from the grant to the end
	Left    time.Duration // Renewed, AtRisk: of the lease, by this process's clock
	Ahead   int           // Waiting: claims before this one, in the store and in this process
	Handoff bool          // Acquired: handed on inside this process, without the store
	HeldBy  *HeldError    // Waiting, Refused: who is in the way, if known
	Err     error         // Refused, AtRisk, Lost, Released (if not confirmed), Warn: why
	Dropped uint64        // events lost before this one, because hooks were too slow
}

// Hooks are called as things happen, one at a time and in order, on one goroutine
// of the Client: never under a lock, never on the way of a renewal. A slow hook
// delays the next ones only. At most 4096 events wait; further ones are dropped
// and counted in Event.Dropped. Hooks must not panic. A nil hook costs nothing.
type Hooks struct {
	Waiting  func(Event) // a call has joined a line
	Acquired func(Event) // a lease was granted
	Refused  func(Event) // a call ended without a lease
	Renewed  func(Event) // a lease was renewed
	AtRisk   func(Event) // a renewal failed, or two thirds of a lease have passed
	Lost     func(Event) // a lease ended before its holder did
	Released func(Event) // a lease was released; Err if the store has not confirmed it yet
	Warn     func(Event) // something an operator should know
}

// LogHooks writes every event to l: losses as errors, risks and warnings as
// warnings, the rest at debug level.
func LogHooks(l *slog.Logger) Hooks {
	log := func(level slog.Level, msg string) func(Event) {
		return func(e Event) {
			if !l.Enabled(context.Background(), level) {
				return
			}
			attrs := make([]slog.Attr, 0, 10)
			attrs = append(attrs, slog.String("key", e.Key))
			if e.Token != 0 {
				attrs = append(attrs, slog.String("token", e.Token.String()))
			}
			for _, d := range []struct {
				name string
				d    time.Duration
			}{{"waited", e.Waited}, {"held", e.Held}, {"left", e.Left}} {
				if d.d != 0 {
					attrs = append(attrs, slog.Duration(d.name, d.d))
				}
			}
			if e.Ahead != 0 {
				attrs = append(attrs, slog.Int("ahead", e.Ahead))
			}
			if e.Handoff {
				attrs = append(attrs, slog.Bool("handoff", true))
			}
			if e.HeldBy != nil {
				attrs = append(attrs, slog.String("held_by", e.HeldBy.Error()))
			}
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
			if e.Dropped != 0 {
				attrs = append(attrs, slog.Uint64("dropped", e.Dropped))
			}
			l.LogAttrs(context.Background(), level, msg, attrs...)
		}
	}
	return Hooks{
		Waiting:  log(slog.LevelDebug, "lock waiting"),
		Acquired: log(slog.LevelDebug, "lock acquired"),
		Refused:  log(slog.LevelDebug, "lock refused"),
		Renewed:  log(slog.LevelDebug, "lock renewed"),
		AtRisk:   log(slog.LevelWarn, "lock at risk"),
		Lost:     log(slog.LevelError, "lock lost"),
		Released: log(slog.LevelDebug, "lock released"),
		Warn:     log(slog.LevelWarn, "lock warning"),
	}
}

// maxEvents is how many events may wait for slow hooks.
const maxEvents = 4096

// dispatcher runs hooks one after another on a goroutine that lives only while
// there are events, so an idle Client has none and a bubble can end.
type dispatcher struct {
	mu      sync.Mutex
	queue   []pending
	dropped uint64
	running bool
	idle    chan struct{} // closed when the goroutine ends, if somebody waits for that
}

type pending struct {
	hook  func(Event)
	event Event
}

func (d *dispatcher) send(hook func(Event), e Event) {
	if hook == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxEvents {
		d.dropped++
		return
	}
	e.Time = time.Now()
	e.Dropped, d.dropped = d.dropped, 0
	d.queue = append(d.queue, pending{hook, e})
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.running = false
			d.queue = nil
			if d.idle != nil {
				close(d.idle)
				d.idle = nil
			}
			d.mu.Unlock()
			return
		}
		p := d.queue[0]
		d.queue[0] = pending{}
		d.queue = d.queue[1:]
		d.mu.Unlock()
		p.hook(p.event)
	}
}

// drain waits until all events have been told, or for d: a hook may be what called
// Close, and would wait for itself.
func (d *dispatcher) drain(most time.Duration) {
	d.mu.Lock()
	if !d.running {
		d.mu.Unlock()
		return
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}
