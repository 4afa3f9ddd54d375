package fencelock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testclient"
)

// OnEvent may do what any caller may, the Client's methods included.
func TestOnEventMayCallTheClient(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *fencelock.Client
		var lease *fencelock.Lease
		did := map[string]bool{}
		var mu sync.Mutex
		use := func(e fencelock.Event) {
			name := string(e.Type)
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
			ok(t, errOf(c.Line(bg, "k")))
			for range c.Lines(bg, "") {
			}
			ok(t, l.Release(bg))
			if lease != nil && name == "lost" {
				lease.Release(bg)
			}
		}
		c = w.client(&fencelock.Options{TTL: 30 * time.Second, OnEvent: use})
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
		for _, name := range []string{"waiting", "acquired", "refused", "renewed", "at risk", "lost", "released", "warning"} {
			if !did[name] {
				t.Errorf("no event %q was heard", name)
			}
		}
	})
}

func TestOnEventMayCloseTheClient(t *testing.T) {
	for _, how := range []string{"Close", "Shutdown"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			var c *fencelock.Client
			done := false
			c = w.client(&fencelock.Options{OnEvent: testclient.On(fencelock.EventLost, func(fencelock.Event) {
				if done {
					return
				}
				if how == "Close" {
					c.Close()
				} else {
					c.Shutdown(bg)
				}
				done = true
			})})
			l := w.lock(c, "k")
			other := w.lock(c, "other")
			if how == "Shutdown" {
				w.release(other)
			}
			must(t, c.Break(bg, "k", l.Token(), fencelock.Break{}))
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if !done {
				t.Error("it hangs")
			}
			w.is(errOf(c.Lock(bg, "k")), fencelock.ErrClosed)
			w.free("other")
		})
	}
}

// A slow OnEvent delays the next events only: no lock waits for it, no renewal does, and
// what no longer fits is counted.
func TestSlowOnEventDelaysNobodyAndDropsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var got, dropped, running uint64
		gate := make(chan struct{})
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
			got++
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
		if held.Err() != nil {
			t.Errorf("renewal waited for OnEvent: %v", held.Err())
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

func TestLogEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		var buf bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		other := w.client(&fencelock.Options{Owner: "other"})
		c := w.client(&fencelock.Options{Owner: "me", TTL: 30 * time.Second, OnEvent: fencelock.LogEvents(logger)})
		first := w.lock(other, "k", fencelock.Note("evil\nnote"))
		w.held(errOf(c.TryLock(bg, "k")))
		k := w.later(c, "k")
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
			`held_by="k is held by other (evil\\nnote)`,
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
		c := w.client(&fencelock.Options{OnEvent: testclient.On(fencelock.EventAcquired, func(e fencelock.Event) {
			<-gate
			events = append(events, e)
		})})
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
