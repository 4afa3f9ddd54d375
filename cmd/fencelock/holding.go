package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

// holding is the way of run, once and acquire from the command line to a lease.
type holding struct {
	*session
	f       *holdFlags
	began   time.Time
	signals chan os.Signal
	renewed chan struct{} // the lease was
	outage  *outageMonitor
	waiting *waitingLine // on a terminal

	progress *progress // of the command; nil without --progress

	ctx    context.Context // ends when a signal asks this process to end
	cancel context.CancelFunc
	quit   chan struct{} // closed to stop waiting for such a signal
	done   chan struct{} // closed when that has stopped
	caught os.Signal     // the signal; read it after done

	trouble string // what was wrong with the store when the waiting ended, or ""

	// With -n: the call ends soon at a store that gives no answer, or refuses every call.
	nowait *time.Timer
	gaveUp atomic.Bool
}

// begin connects, for a name and flags that were checked. Signals end the waiting
// from now on, until settle.
func (c *cli) begin(f *holdFlags, r *report) (*holding, error) {
	where, err := c.findStore()
	if err != nil {
		return nil, err
	}
	r.Backend = where.String()
	if where.Private() {
		return nil, unusable(usage("memory: excludes nobody outside this process, so it cannot hold %s; set %s, or "+
			"use --url local:", quote(f.name), envURL), where.source)
	}
	if where.notice != "" {
		say("the lock %s is %s", quote(f.name), where.notice)
	}
	h := &holding{
		f:       f,
		began:   time.Now(),
		signals: make(chan os.Signal, 64),
		renewed: make(chan struct{}, 1),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
		outage:  &outageMonitor{notify: say, name: about(f.name), store: where.String()},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	outlivePipes()
	child.Adopt()
	signal.Notify(h.signals, child.Forwarded()...)
	go h.awaitSignal()

	open, err := where.connectWithin(h.ctx, f.name, f.wait, !f.nowait)
	if err != nil {
		if stopped := h.settle(); stopped != nil {
			return nil, stopped
		}
		return nil, f.notAcquired(err)
	}
	if !f.quiet {
		where.warn(h.ctx, open)
	}
	if isTerminal(os.Stderr) && !f.quiet && os.Getenv("TERM") != "dumb" {
		h.waiting = newWaitingLine(f.name)
	}
	open.Backend = observe(open.Backend, h.outage, h.waiting)
	h.session, err = c.newSession(where, open, fencelock.Options{TTL: f.ttl.d, OnEvent: h.onEvent(where)})
	if err != nil {
		open.Close()
		return nil, err
	}
	r.Owner = owner()
	if err := f.checkStore(h.session); err != nil {
		h.close()
		return nil, err
	}
	h.outage.begin()
	if f.nowait {
		h.nowait = time.AfterFunc(nowaitContact, func() {
			h.gaveUp.Store(true)
			h.cancel()
		})
	}
	return h, nil
}

// close ends what begin and runUnder began. The rest of the output is passed on after the
// release: whoever reads it may be slow.
func (h *holding) close() {
	h.progress.end()
	h.session.close()
}

// awaitSignal waits for a signal that ends the waiting.
func (h *holding) awaitSignal() {
	defer close(h.done)
	for {
		select {
		case s := <-h.signals:
			if child.Ends(s) {
				h.caught = s
				h.cancel()
				return
			}
		case <-h.quit:
			return
		}
	}
}

// settle stops the listening for signals that end the waiting, and reports what ended it:
// a signal, or the time that -n gives. From then on signals pile up in h.signals. It may be
// called again.
func (h *holding) settle() error {
	select {
	case <-h.quit:
	default:
		close(h.quit)
	}
	<-h.done
	h.waiting.end()
	if h.nowait != nil {
		h.nowait.Stop()
	}
	if trouble := h.outage.end(); trouble != "" {
		h.trouble = "; " + trouble
	}
	switch {
	case h.caught != nil:
		return leftLine(h.f.name, h.caught, h.trouble)
	case h.gaveUp.Load():
		return h.store.silent(h.f.name, h.outage.lastError())
	}
	return nil
}

// leftLine is the end of a waiting by a signal. why is what else there is to say.
func leftLine(name string, s os.Signal, why string) error {
	n, signal := child.SignalNumber(s)
	err := fail(128+n, "%s: %s while waiting; left the line%s", quote(name), signal, why)
	if s == os.Interrupt {
		return interrupted{err}
	}
	return err
}

// acquire waits for the lease.
func (h *holding) acquire() (*fencelock.Lease, error) {
	l, err := h.lock()
	stopped := h.settle()
	switch {
	case stopped != nil && err == nil:
		h.giveBack(l)
		return nil, stopped
	case stopped != nil:
		return nil, stopped
	case err != nil:
		return nil, h.explain(err)
	}
	h.f.fit(time.Until(l.Deadline()))
	return l, nil
}

func (h *holding) lock() (*fencelock.Lease, error) {
	switch f := h.f; {
	case f.size > 0:
		return h.Acquire(h.ctx, f.name, f.permits, f.size, f.options(h.began)...)
	case f.shared:
		return h.RLock(h.ctx, f.name, f.options(h.began)...)
	default:
		return h.Lock(h.ctx, f.name, f.options(h.began)...)
	}
}

// explain is what ends this process when no lease was had.
func (h *holding) explain(err error) error {
	if errors.Is(err, fencelock.ErrKind) {
		return h.otherKind(err)
	}
	return h.f.notAcquired(explain(h.store, h.f.name, err))
}

// notAcquired is err, with the code of -E if it says that the lock was not acquired.
func (f *holdFlags) notAcquired(err error) error {
	var own *failure
	if errors.As(err, &own) && own.code == exitNotAcquired {
		own.code = f.code
		if own.code == 0 && !f.quiet {
			say("%s", own.text)
		}
		if own.code == 0 || f.quiet {
			return silently(own.code)
		}
	}
	return err
}

// otherKind says that the name cannot be held in the way that was asked for.
func (h *holding) otherKind(err error) error {
	_, kinds, _ := strings.Cut(err.Error(), fencelock.ErrKind.Error()+": ")
	kinds, _, _ = strings.Cut(kinds, ";")
	next := "choose another name"
	switch {
	case h.f.size > 0 && strings.HasPrefix(kinds, "it is a semaphore"):
		next += ", or give its --size"
	case h.f.size > 0:
		next += ", or leave out --size"
	case h.f.kinds:
		next += ", or add --size"
	}
	return usage("%s is in use as another kind of lock on %s: %s; see fencelock show, and %s",
		quote(h.f.name), h.store, kinds, next)
}

// onEvent tells people what happens. Only what they cannot do without is told when
// nobody sits at the terminal and nobody asked.
func (h *holding) onEvent(s *store) func(fencelock.Event) {
	name, tellsWaiting := quote(h.f.name), h.f.verbose || !h.f.quiet && h.waiting == nil
	return func(e fencelock.Event) {
		switch {
		case e.Type == fencelock.EventRenewed:
			select {
			case h.renewed <- struct{}{}:
			default:
			}
		case e.Type == fencelock.EventWarning:
			say("%s on %s: %v", name, s, e.Err)
		case e.Type == fencelock.EventWaiting && tellsWaiting:
			say("waiting for %s, %s", name, waitsFor(h.inTheWay(e.HeldBy)))
		case !h.f.verbose:
		case e.Type == fencelock.EventAcquired:
			say("%s is held on %s with token %s, after %s in line", name, s, e.Token, span(e.Took))
		case e.Type == fencelock.EventAtRisk:
			say("%s is at risk, with %s left: %s", name, span(e.Left), cause(e.Err))
		}
	}
}

// inTheWay adds the holder's name to held. On SQL databases a claim arrives without reading
// the line, so the response does not name the holder.
func (h *holding) inTheWay(held *fencelock.HeldError) *fencelock.HeldError {
	if held.Owner != "" {
		return held
	}
	ctx, cancel := context.WithTimeout(h.ctx, time.Second)
	defer cancel()
	line, err := h.session.Line(ctx, h.f.name)
	if err != nil || len(line.Claims) == 0 {
		return held
	}
	head := headOf(line)
	head.Ahead = held.Ahead
	return head
}

// release gives the lease back and returns the loss, if it was lost. That nobody
// confirmed it is no error: the command ran under its lock. unconfirmed says so to people.
func (h *holding) release(l *fencelock.Lease) (lost error, unconfirmed string) {
	err := l.Release(context.Background())
	if err == nil || errors.Is(err, fencelock.ErrLost) {
		return err, ""
	}
	return nil, fmt.Sprintf("%s: the release could not be confirmed: %s; the name is free %s from now at the latest",
		quote(h.f.name), cause(err), span(time.Until(l.Deadline())+time.Second))
}

// giveBack releases a lease under which nothing has run: so --min-hold keeps nothing apart.
func (h *holding) giveBack(l *fencelock.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if l.Release(ctx) == nil && h.f.minHold.d > 0 {
		how := fencelock.Break{Reason: "nothing has run", Delay: -1} // ends the lingering
		_ = h.Break(ctx, h.f.name, l.Token(), how)
	}
}

// withSecondLine adds text to what is said at the end with err: a loss comes first.
func withSecondLine(err error, text string) error {
	var own *failure
	switch {
	case text == "":
	case errors.As(err, &own):
		own.after = text
	default:
		say("%s", text)
	}
	return err
}
