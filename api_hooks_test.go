package fencelock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
)

// listener notes all events in the order in which it hears them.
type listener struct {
	mu     sync.Mutex
	names  []string
	events []fencelock.Event
}

func (l *listener) hooks() fencelock.Hooks {
	hear := func(name string) func(fencelock.Event) {
		return func(e fencelock.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.names = append(l.names, name)
			l.events = append(l.events, e)
		}
	}
	return fencelock.Hooks{
		Waiting: hear("waiting"), Acquired: hear("acquired"), Refused: hear("refused"), Renewed: hear("renewed"),
		AtRisk: hear("at risk"), Lost: hear("lost"), Released: hear("released"), Warn: hear("warn"),
	}
}

// heard returns what was heard since the last call.
func (l *listener) heard() ([]string, []fencelock.Event) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	n, e := l.names, l.events
	l.names, l.events = nil, nil
	return n, e
}

func (w *world) hears(l *listener, want ...string) []fencelock.Event {
	w.Helper()
	names, events := l.heard()
	if !slices.Equal(names, want) {
		w.Fatalf("heard %q, want %q (%+v)", names, want, events)
	}
	return events
}

func TestHooksTellTheLifeOfALease(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		other := w.client(&fencelock.Options{Owner: "other"})
		c := w.client(&fencelock.Options{Owner: "me", TTL: 30 * time.Second, Hooks: ear.hooks()})

		l := w.lock(c, "k")
		e := w.hears(&ear, "acquired")[0]
		if e.Key != "k" || e.Owner != "me" || e.Token != l.Token() || e.Waited != 0 || e.Handoff || !e.Time.Equal(time.Now()) {
			t.Errorf("acquired: %+v", e)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		e = w.hears(&ear, "renewed")[0]
		if e.Key != "k" || e.Token != l.Token() || e.Left < 29*time.Second {
			t.Errorf("renewed: %+v", e)
		}
		w.release(l)
		e = w.hears(&ear, "released")[0]
		if e.Token != l.Token() || e.Held != 10*time.Second+time.Millisecond || e.Err != nil {
			t.Errorf("released: %+v", e)
		}

		first := w.lock(other, "k")
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
		e = w.hears(&ear, "waiting")[0]
		if e.Ahead != 1 || e.HeldBy == nil || e.HeldBy.Owner != "other" || e.HeldBy.Token != first.Token() {
			t.Errorf("waiting: %+v", e)
		}
		time.Sleep(5 * time.Second)
		w.release(first)
		l = w.got(k.wait())
		e = w.hears(&ear, "acquired")[0]
		if e.Waited != 5*time.Second {
			t.Errorf("acquired: %+v", e)
		}
		if err := c.Break(bg, "k", l.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		e = w.hears(&ear, "lost")[0]
		w.is(e.Err, fencelock.ErrBroken)
		if e.Token != l.Token() || e.Key != "k" {
			t.Errorf("lost: %+v", e)
		}
		l.Release(bg)
		w.hears(&ear)

		first = w.lock(other, "k")
		_, err := c.Lock(bg, "k", fencelock.Wait(3*time.Second))
		w.held(err)
		ev := w.hears(&ear, "waiting", "refused")
		w.is(ev[1].Err, fencelock.ErrNotAcquired)
		if ev[1].Waited != 3*time.Second || ev[1].HeldBy == nil || ev[1].HeldBy.Owner != "other" {
			t.Errorf("refused: %+v", ev[1])
		}
		_, err = c.TryLock(bg, "k")
		w.held(err)
		w.hears(&ear, "refused")
		w.release(first)
	})
}

func TestRefusedIsToldOfBadInputToo(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		c := w.client(&fencelock.Options{Hooks: ear.hooks()})
		time.Sleep(time.Hour)
		if _, err := c.Lock(bg, "k", fencelock.TTL(0)); err == nil {
			t.Error("granted")
		}
		e := w.hears(&ear, "refused")[0]
		w.is(e.Err, fencelock.ErrInvalid)
		if e.Waited != 0 {
			t.Errorf("it is told to have waited %v", e.Waited)
		}
	})
}

func TestAtRiskIsToldOncePerTrouble(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		c := w.client(&fencelock.Options{TTL: 30 * time.Second, Hooks: ear.hooks()})
		l := w.lock(c, "k")
		w.store.meddle(only(down, "renew"), nil)
		time.Sleep(15 * time.Second)
		ev := w.hears(&ear, "acquired", "at risk")
		w.is(ev[1].Err, errDown, fencelock.ErrUnavailable)
		if ev[1].Left < 15*time.Second || ev[1].Left > 20*time.Second {
			t.Errorf("%v left", ev[1].Left)
		}
		w.store.heal()
		time.Sleep(5 * time.Second)
		w.hears(&ear, "renewed")
		w.store.meddle(only(silent, "renew"), nil)
		time.Sleep(20 * time.Second)
		w.hears(&ear, "at risk") // a third of the lease is left
		time.Sleep(20 * time.Second)
		ev = w.hears(&ear, "lost")
		w.is(ev[0].Err, fencelock.ErrExpired)
		w.is(l.Err(), fencelock.ErrExpired)
	})
}

// The caller's own ctx cut a renewal by hand short: that says nothing of the store.
func TestRenewUnderACancelledContextIsNoRisk(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		l := w.lock(w.client(&fencelock.Options{Hooks: ear.hooks()}), "k")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		w.is(l.Renew(ctx), context.Canceled)
		w.hears(&ear, "acquired")
		w.release(l)
	})
}

// One thing after the other, as they happened: the lease of A ends before B gets it.
func TestHandOffIsToldInItsOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		c := w.client(&fencelock.Options{Hooks: ear.hooks()})
		l := w.lock(c, "k")
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
		w.release(l)
		next := w.got(k.wait())
		w.release(next)
		ev := w.hears(&ear, "acquired", "waiting", "released", "acquired", "released")
		if ev[2].Token != l.Token() || ev[3].Token != next.Token() || !ev[3].Handoff || ev[4].Token != next.Token() {
			t.Errorf("%+v", ev)
		}
		if ev[1].Ahead != 1 {
			t.Errorf("waiting: %+v", ev[1])
		}
	})
}

// A grant that is renewed before Lock returns has not been acquired yet.
func TestNothingIsToldOfALeaseBeforeItIsAcquired(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		c := w.client(&fencelock.Options{TTL: 30 * time.Second, Hooks: ear.hooks()})
		other := w.client(nil)
		first := w.lock(other, "k")
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k", fencelock.FixedLease(time.Hour)) })
		time.Sleep(5 * time.Second)
		w.release(first)
		w.release(w.got(k.wait()))
		names, _ := ear.heard()
		if i := slices.Index(names, "acquired"); i < 0 || slices.Contains(names[:i], "renewed") || slices.Contains(names[:i], "at risk") {
			t.Errorf("heard %q", names)
		}
	})
}

func TestReentrantHandlesAreOneGrantToTheHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		var ear listener
		c := w.client(&fencelock.Options{Hooks: ear.hooks()})
		l := w.lock(c, "k")
		in := w.got(c.Lock(l.Context(), "k", fencelock.Reentrant()))
		w.release(l)
		w.hears(&ear, "acquired")
		w.release(in)
		w.hears(&ear, "released")
	})
}

func TestWarnTellsOfATTLThatTheBackendCannotDo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL, w.store.info.MaxTTL = 2*time.Second, time.Hour
		var ear listener
		c := w.client(&fencelock.Options{Hooks: ear.hooks()})
		for range 3 {
			w.release(w.lock(c, "k", fencelock.TTL(time.Second)))
			w.release(w.lock(c, "k", fencelock.TTL(2*time.Hour)))
		}
		for i, claim := range w.store.entered() {
			if want := []time.Duration{2 * time.Second, time.Hour}[i%2]; claim.TTL != want {
				t.Errorf("entered with %v, want %v", claim.TTL, want)
			}
		}
		names, events := ear.heard()
		n := 0
		for i, name := range names {
			if name == "warn" {
				n++
				if !strings.Contains(events[i].Err.Error(), "lease") {
					t.Error(events[i].Err)
				}
			}
		}
		if n != 2 {
			t.Errorf("%d warnings, want one of each", n)
		}
	})
}

// A hook may do what any caller may, the Client's methods included.
func TestHooksMayCallTheClient(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *fencelock.Client
		var lease *fencelock.Lease
		did := map[string]bool{}
		var mu sync.Mutex
		use := func(name string) func(fencelock.Event) {
			return func(e fencelock.Event) {
				mu.Lock()
				again := did[name]
				did[name] = true
				mu.Unlock()
				if again || e.Key != "k" {
					return
				}
				l, err := c.TryLock(bg, "in "+name)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				l.Deadline()
				l.Err()
				if _, err := c.Line(bg, "k"); err != nil {
					t.Error(err)
				}
				for range c.Lines(bg, "") {
				}
				if err := l.Release(bg); err != nil {
					t.Error(err)
				}
				if lease != nil && name == "lost" {
					lease.Release(bg)
				}
			}
		}
		c = w.client(&fencelock.Options{TTL: 30 * time.Second, Hooks: fencelock.Hooks{
			Waiting: use("waiting"), Acquired: use("acquired"), Refused: use("refused"), Renewed: use("renewed"),
			AtRisk: use("at risk"), Lost: use("lost"), Released: use("released"), Warn: use("warn"),
		}})
		l := w.lock(c, "k", fencelock.TTL(time.Nanosecond*1e6)) // below the least: a warning
		if _, err := c.TryLock(bg, "k"); err == nil {
			t.Error("granted twice")
		}
		if _, err := c.Lock(bg, "k", fencelock.Wait(time.Millisecond)); err == nil {
			t.Error("granted twice")
		}
		time.Sleep(time.Second)
		w.release(l)
		lease = w.lock(c, "k")
		w.store.meddle(only(down, "renew"), nil)
		<-lease.Context().Done()
		w.store.heal()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"waiting", "acquired", "refused", "renewed", "at risk", "lost", "released", "warn"} {
			if !did[name] {
				t.Errorf("the hook %q was never called", name)
			}
		}
	})
}

func TestHookMayCloseTheClient(t *testing.T) {
	for _, how := range []string{"Close", "Shutdown"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var c *fencelock.Client
				done := false
				c = w.client(&fencelock.Options{Hooks: fencelock.Hooks{Lost: func(fencelock.Event) {
					if done {
						return
					}
					if how == "Close" {
						c.Close()
					} else {
						c.Shutdown(bg)
					}
					done = true
				}}})
				l := w.lock(c, "k")
				other := w.lock(c, "other")
				if how == "Shutdown" {
					w.release(other)
				}
				if err := c.Break(bg, "k", l.Token(), ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if !done {
					t.Error("it hangs")
				}
				_, err := c.Lock(bg, "k")
				w.is(err, fencelock.ErrClosed)
				w.free("other")
			})
		})
	}
}

// A slow hook delays the next ones only: no lock waits for it, no renewal does, and
// what no longer fits is counted.
func TestSlowHookDelaysNobodyAndDropsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var got, dropped, running uint64
		gate := make(chan struct{})
		slow := func(e fencelock.Event) {
			mu.Lock()
			if running++; running > 1 {
				t.Error("two hooks at once")
			}
			mu.Unlock()
			<-gate
			mu.Lock()
			defer mu.Unlock()
			running--
			got++
			dropped += e.Dropped
		}
		c := w.client(&fencelock.Options{TTL: 3 * time.Second, Hooks: fencelock.Hooks{Acquired: slow, Released: slow, Renewed: slow}})
		held := w.lock(c, "held") // event 1: is being told
		start := time.Now()
		const n = 3000
		for range n {
			w.release(w.lock(c, "k"))
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("locking took %v", d)
		}
		time.Sleep(time.Minute)
		if held.Err() != nil {
			t.Errorf("renewal waited for a hook: %v", held.Err())
		}
		for range 4096 { // one after the other: what waits stays bounded all the while
			gate <- struct{}{}
			synctest.Wait()
		}
		for range n {
			w.release(w.lock(c, "k"))
		}
		close(gate)
		synctest.Wait()
		w.release(w.lock(c, "k"))
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if most := uint64(2*4096 + 4); got > most {
			t.Errorf("%d events were kept, want at most %d", got, most)
		}
		if dropped == 0 || got+dropped < 4*n {
			t.Errorf("%d told and %d dropped of more than %d", got, dropped, 4*n)
		}
		w.release(held)
	})
}

func TestLogHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		var buf bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		other := w.client(&fencelock.Options{Owner: "other"})
		c := w.client(&fencelock.Options{Owner: "me", TTL: 30 * time.Second, Hooks: fencelock.LogHooks(logger)})
		first := w.lock(other, "k", fencelock.Note("evil\nnote"))
		_, err := c.TryLock(bg, "k")
		w.held(err)
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
		w.release(first)
		l := w.got(k.wait())
		time.Sleep(11 * time.Second)
		w.store.meddle(only(down, "renew"), nil)
		<-l.Context().Done()
		w.store.heal()
		w.release(w.lock(c, "j"))
		synctest.Wait()
		text := buf.String()
		for _, want := range []string{
			`level=DEBUG msg="lock refused" key=k`, `level=DEBUG msg="lock waiting" key=k`,
			`level=DEBUG msg="lock acquired" key=k token=` + l.Token().String(),
			`level=DEBUG msg="lock renewed" key=k`, `level=WARN msg="lock at risk" key=k`,
			`level=ERROR msg="lock lost" key=k`, `level=DEBUG msg="lock released" key=j`,
			`held_by="k is held by other (evil\\x0anote)`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not in the log:\n%s", want, text)
			}
		}
	})
}

func TestEventTimesAreWhenThingsHappened(t *testing.T) {
	inWorld(t, func(w *world) {
		gate := make(chan struct{})
		var events []fencelock.Event
		c := w.client(&fencelock.Options{Hooks: fencelock.Hooks{
			Acquired: func(e fencelock.Event) { <-gate; events = append(events, e) },
		}})
		var want []time.Time
		for i := range 3 {
			w.release(w.lock(c, fmt.Sprint(i)))
			want = append(want, time.Now())
			time.Sleep(time.Second)
		}
		close(gate)
		synctest.Wait()
		for i, e := range events {
			if !e.Time.Equal(want[i]) || e.Key != fmt.Sprint(i) {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		if len(events) != 3 {
			t.Error(events)
		}
	})
}
