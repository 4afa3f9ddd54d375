package fencelock

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock/fence"
)

// Event is passed to a hook. Fields that do not apply are zero.
type Event struct {
	Context context.Context // of the call that took the lease, or waits for it; nil for a Warn of no call
	Time    time.Time
	Key     string
	Kind    Kind
	Permits int64  // of a semaphore's claim
	Owner   string // who has the lease, or wants it: Owner of the call, else this Client's
	Note    string // of the claim
	Token   fence.Token
	Wait    uint64        // Waiting, and the Acquired or Refused that ends it: its number in this Client; else 0
	Waited  time.Duration // Acquired, Refused: from the call to the answer
	Held    time.Duration // Lost, Released: from the grant to the end
	Left    time.Duration // Renewed, AtRisk: of the lease, by this process's clock
	Margin  time.Duration // Renewed: what was left of the lease before, as the store answered
	Ahead   int           // Waiting: claims before this one in the store, or calls before it in this process
	Handoff bool          // Acquired: passed on inside this process, without the store
	HeldBy  *HeldError    // Waiting, Refused: who holds the lock, if known; Acquired: who did as the wait began
	Err     error         // Refused, AtRisk, Lost, Released (if not confirmed), Warn: why
	Revoked *Revocation   // Revoked: who asks for the lock, and why
	Dropped uint64        // events lost before this one, because hooks were too slow
}

// Hooks are called one at a time and in order, on one goroutine of the Client. The
// Client holds no lock meanwhile, and no renewal waits for a hook. A slow hook delays
// only the next hooks. At most 4096 events wait. Further events are dropped and counted
// in Event.Dropped. Hooks must not panic. A nil hook costs nothing.
type Hooks struct {
	Waiting  func(Event) // a call waits, in line or behind another call of this process
	Acquired func(Event) // a lease was granted
	Refused  func(Event) // a call ended without a lease
	Renewed  func(Event) // a lease was renewed
	AtRisk   func(Event) // a renewal failed, two thirds of a lease have passed, or its holder is stalled
	Revoked  func(Event) // somebody asks for the lock by Client.Revoke, and its holder has called Lease.Revoked
	Lost     func(Event) // a lease ended before its holder did
	Released func(Event) // a lease was released; Err if the store has not confirmed it yet
	Warn     func(Event) // something an operator should know
}

// JoinHooks returns Hooks that call those of each of all, in their order, with the same
// event. A hook that none of them has stays nil.
func JoinHooks(all ...Hooks) Hooks {
	var j Hooks
	for _, h := range all {
		j.Waiting = joinHook(j.Waiting, h.Waiting)
		j.Acquired = joinHook(j.Acquired, h.Acquired)
		j.Refused = joinHook(j.Refused, h.Refused)
		j.Renewed = joinHook(j.Renewed, h.Renewed)
		j.AtRisk = joinHook(j.AtRisk, h.AtRisk)
		j.Revoked = joinHook(j.Revoked, h.Revoked)
		j.Lost = joinHook(j.Lost, h.Lost)
		j.Released = joinHook(j.Released, h.Released)
		j.Warn = joinHook(j.Warn, h.Warn)
	}
	return j
}

// joinHook returns a hook that calls first and then second. Either may be nil.
func joinHook(first, second func(Event)) func(Event) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e Event) {
		first(e)
		second(e)
	}
}

// LogHooks writes every event to l: losses as errors, risks and warnings as
// warnings, the rest at debug level.
func LogHooks(l *slog.Logger) Hooks {
	log := func(level slog.Level, msg string) func(Event) {
		return func(e Event) {
			if !l.Enabled(context.Background(), level) {
				return
			}
			ctx := e.Context
			if ctx == nil {
				ctx = context.Background()
			}
			attrs := []slog.Attr{slog.String("key", e.Key)}
			add := func(given bool, a slog.Attr) {
				if given {
					attrs = append(attrs, a)
				}
			}
			add(e.Token != 0, slog.String("token", e.Token.String()))
			add(e.Waited != 0, slog.Duration("waited", e.Waited))
			add(e.Held != 0, slog.Duration("held", e.Held))
			add(e.Left != 0, slog.Duration("left", e.Left))
			add(e.Ahead != 0, slog.Int("ahead", e.Ahead))
			add(e.Handoff, slog.Bool("handoff", true))
			add(e.Dropped != 0, slog.Uint64("dropped", e.Dropped))
			if e.HeldBy != nil {
				attrs = append(attrs, slog.String("held_by", e.HeldBy.Error()))
			}
			if r := e.Revoked; r != nil {
				attrs = append(attrs, slog.String("revoked_by", r.Owner), slog.String("reason", r.Reason))
			}
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
			l.LogAttrs(ctx, level, msg, attrs...)
		}
	}
	return Hooks{
		Waiting:  log(slog.LevelDebug, "lock waiting"),
		Acquired: log(slog.LevelDebug, "lock acquired"),
		Refused:  log(slog.LevelDebug, "lock refused"),
		Renewed:  log(slog.LevelDebug, "lock renewed"),
		AtRisk:   log(slog.LevelWarn, "lock at risk"),
		Revoked:  log(slog.LevelWarn, "lock revoked"),
		Lost:     log(slog.LevelError, "lock lost"),
		Released: log(slog.LevelDebug, "lock released"),
		Warn:     log(slog.LevelWarn, "lock warning"),
	}
}

// maxEvents is how many events may wait for slow hooks.
const maxEvents = 4096

// dispatcher runs hooks one after another. Its goroutine ends when no event waits, so an
// idle Client has none.
type dispatcher struct {
	Hooks
	owner  string
	warned sync.Map // texts of the warnings sent so far

	mu      sync.Mutex
	queue   []pendingEvent
	dropped uint64
	running chan struct{} // closed when the goroutine ends; nil while none runs
}

type pendingEvent struct {
	hook  func(Event)
	event Event
}

// send queues one event. It may be called under any lock of the core.
func (d *dispatcher) send(hook func(Event), e Event) {
	if hook == nil {
		return
	}
	e.Owner = cmp.Or(e.Owner, d.owner)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxEvents {
		d.dropped++
		return
	}
	e.Time = cmp.Or(e.Time, time.Now())
	e.Dropped, d.dropped = d.dropped, 0
	d.queue = append(d.queue, pendingEvent{hook, e})
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
		p := d.queue[0]
		d.queue[0] = pendingEvent{}
		d.queue = d.queue[1:]
		d.mu.Unlock()
		p.hook(p.event)
	}
}

// warnOnce sends a warning unless the same text was sent before.
func (d *dispatcher) warnOnce(e Event, err error) {
	if d.Warn == nil {
		return
	}
	if _, sent := d.warned.LoadOrStore(err.Error(), true); !sent {
		e.Err = err
		d.send(d.Warn, e)
	}
}

// drain waits until no event is left, and at most for limit: a hook may have called Close,
// and then Close waits for that hook.
func (d *dispatcher) drain(limit time.Duration) {
	d.mu.Lock()
	running := d.running
	d.mu.Unlock()
	waitFor(running, limit)
}

// waitFor waits until done is closed, and at most for limit. A nil done is not waited for.
func waitFor(done <-chan struct{}, limit time.Duration) {
	if done == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
