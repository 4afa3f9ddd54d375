package fencelock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// OnEvent may do what any caller may, the Client's methods included, also for events that are sent while the
// claim is locked.
func TestOnEventMayCallTheClient(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *fencelock.Client
		var lease *fencelock.Lease
		heard := 0
		use := func(e fencelock.Event) {
			if e.Key != "k" {
				return
			}
			heard++
			l, err := c.TryLock(bg, "in "+string(e.Type))
			ok(t, err)
			ok(t, l.Err())
			ok(t, errOf(c.Line(bg, "k")))
			for range c.Lines(bg, "") {
			}
			ok(t, l.Release(bg))
			if e.Type == fencelock.EventLost {
				w.is(lease.Release(bg), fencelock.ErrExpired)
			}
		}
		c = w.client(&fencelock.Options{OnEvent: use})
		lease = w.lock(c, "k")
		w.store.meddle(only(down, "renew"), nil)
		<-lease.Context().Done()
		w.store.heal()
		synctest.Wait()
		steps.Same(t, "events: acquired, at risk, lost", heard, 3)
	})
}

func TestOnEventMayCloseTheClient(t *testing.T) {
	for how, end := range endings {
		runInWorld(t, how, func(t *testing.T, w *world) {
			var c *fencelock.Client
			done := false
			c = w.client(&fencelock.Options{OnEvent: testclient.On(fencelock.EventLost, func(fencelock.Event) {
				ok(t, end(c))
				done = true
			})})
			l := w.lock(c, "k")
			must(t, c.Break(bg, "k", l.Token(), fencelock.Break{}))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			steps.Same(t, "it has ended", done, true)
			w.is(errOf(c.Lock(bg, "k")), fencelock.ErrClosed)
		})
	}
}

// A slow OnEvent delays the next events only: no lock waits for it, no renewal does, and
// what no longer fits is counted.
func TestSlowOnEventDelaysNobodyAndDropsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var got, dropped, running uint64
		begun, gate := time.Now(), make(chan struct{})
		slow := func(e fencelock.Event) {
			mu.Lock()
			if running++; running > 1 {
				t.Error("two events at once")
			}
			mu.Unlock()
			<-gate
			mu.Lock()
			defer mu.Unlock()
			running--
			if got++; got == 1 && !e.Time.Equal(begun) {
				t.Errorf("an event of %v was told as one of %v", begun, e.Time)
			}
			dropped += e.Dropped
		}
		c := w.client(&fencelock.Options{TTL: 3 * time.Second, OnEvent: slow})
		held := w.lock(c, "held") // event 1: is being told
		start := time.Now()
		const n = 3000
		for range n {
			w.release(w.lock(c, "k"))
		}
		took(t, start, 0)
		time.Sleep(time.Minute)
		steps.Well(t, "renewal waits for OnEvent", held.Err())
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

func TestLogEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		var buf bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w.lock(w.client(&fencelock.Options{Owner: "other"}), "k", fencelock.Note("evil\nnote"))
		c := w.client(&fencelock.Options{OnEvent: fencelock.LogEvents(logger)})
		w.held(errOf(c.TryLock(bg, "k")))
		l := w.lock(c, "j")
		time.Sleep(11 * time.Second)
		w.store.meddle(only(down, "renew"), nil)
		<-l.Context().Done()
		synctest.Wait()
		text := buf.String()
		for _, want := range []string{
			`level=DEBUG msg="lock refused" key=k held_by="k is held by other (evil\\nnote)`,
			`level=DEBUG msg="lock acquired" key=j token=` + l.Token().String(), `level=DEBUG msg="lock renewed" key=j`,
			`level=WARN msg="lock at risk" key=j`, `level=ERROR msg="lock lost" key=j`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not in the log:\n%s", want, text)
			}
		}
	})
}
