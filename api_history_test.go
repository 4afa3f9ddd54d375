package fencelock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/history"
	"github.com/fencelock/fencelock/internal/limit"
)

func (p *probe) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	return p.step(ctx, "record", func(ctx context.Context) error { return p.Store.Record(ctx, es, keep) })
}

func (p *probe) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	return answered(ctx, p, "history", func(ctx context.Context) ([]record.Entry, error) { return p.Store.History(ctx, key, n) })
}

// recording is a Client that writes its history.
func (w *world) recording(owner string) *fencelock.Client {
	return w.client(&fencelock.Options{Owner: owner, OnEvent: w.recorder(nil).OnEvent})
}

func (w *world) recorder(o *history.Options) *history.Recorder {
	w.Helper()
	r, err := history.New(w.store, o)
	ok(w.T, err)
	return r
}

// history is what the store remembers of key, the oldest first, in words.
func (w *world) history(key string) (words []string) {
	w.Helper()
	time.Sleep(time.Second)
	es, err := history.Read(bg, w.store, key, 10_000)
	ok(w.T, err)
	for _, e := range es {
		text := e.Owner + " waited " + e.Granted.Sub(e.Asked).String()
		if e.Granted.IsZero() {
			text = e.Owner + " never granted"
		}
		switch {
		case e.Held:
			text += ", holds"
		case e.Ended.IsZero():
			text += ", no end"
		default:
			if !e.Granted.IsZero() {
				text += fmt.Sprintf(", held %v", e.Ended.Sub(e.Granted))
			}
			text += ", " + e.End
		}
		if e.BrokenBy != "" {
			text += " by " + e.BrokenBy
		}
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		if e.Missing > 0 {
			text += fmt.Sprintf(" (%d missing)", e.Missing)
		}
		words = append([]string{text}, words...)
	}
	return words
}

func (w *world) remembers(key string, want ...string) {
	w.Helper()
	steps.Same(w, "the history", strings.Join(w.history(key), "\n"), strings.Join(want, "\n"))
}

func TestHistorySaysWhoHeldTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.recording("a"), w.recording("b")
		l := w.lock(a, "k", fencelock.Note("nightly"))
		k := w.later(b, "k", fencelock.Owner("for c"))
		time.Sleep(3 * time.Second)
		w.release(l)
		l = w.got(k.wait())
		time.Sleep(time.Hour)
		w.remembers("k", "a waited 0s, held 3s, released", "for c waited 3s, holds")
		w.release(l)
		l = w.lock(a, "k", fencelock.MaxHold(time.Minute))
		<-l.Context().Done()
		w.remembers("k", "a waited 0s, held 3s, released", "for c waited 3s, held 1h0m1s, released",
			"a waited 0s, held 1m0s, max_hold")
		es, err := history.Read(bg, w.store, "k", 100)
		ok(t, err)
		if e := es[2]; e.Note != "nightly" || e.Kind != "exclusive" || e.Key != "k" || e.Token == 0 {
			t.Errorf("the entry is %+v", e)
		}
	})
}

// Lock and Release send what they send without a history; the rest comes together, later.
func TestHistoryIsWrittenInTheBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.recording("c")
		for range 50 {
			w.release(w.lock(c, "k"))
		}
		steps.Same(t, "steps", strings.Join(w.store.taken(), " ")+" ", strings.Repeat("enter leave ", 50))
		time.Sleep(time.Second)
		w.steps("record")
		time.Sleep(time.Hour)
		w.steps()
	})
}

func TestHistorySaysWhoBrokeALock(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, operator := w.recording("a"), w.recording("b"), w.recording("operator")
		l := w.lock(a, "k")
		k := w.later(b, "k")
		ok(t, operator.Break(bg, "k", l.Token(), fencelock.Break{Reason: "it hung"}))
		<-l.Context().Done()
		w.release(w.got(k.wait()))
		w.remembers("k", "a waited 0s, held 0s, broken by operator: it hung", "b waited 0s, held 0s, released")

		l = w.lock(a, "k")
		k = w.later(b, "k", fencelock.Wait(time.Hour))
		line := w.line(a, "k")
		ok(t, operator.Break(bg, "k", line.Claims[1].Token, fencelock.Break{Reason: "no more of these"}))
		w.release(l)
		w.is(errOf(k.wait()), fencelock.ErrLost)
		got, want := w.history("k"), " never granted, broken by operator: no more of these"
		if len(got) != 4 || got[3] != want {
			t.Errorf("the history with a broken waiter is %q, want %q at last", got, want)
		}
	})
}

// A break names a claim by any of its tokens, and its holder may have had a later one.
func TestHistoryFindsTheBrokenHolderOfASpan(t *testing.T) {
	inWorld(t, func(w *world) {
		a, operator := w.recording("a"), w.recording("operator")
		l := w.lock(a, "k")
		k := w.later(a, "k")
		w.release(l)
		l = w.got(k.wait())
		line := w.line(operator, "k")
		if line.Claims[0].Token == l.Token() {
			t.Fatal("it was not handed on")
		}
		time.Sleep(time.Second)
		ok(t, operator.Break(bg, "k", line.Claims[0].Token, fencelock.Break{Reason: "it hung"}))
		<-l.Context().Done()
		w.remembers("k", "a waited 0s, held 0s, released", "a waited 0s, held 1s, broken by operator: it hung")
	})
}

// An outage delays no call. What is written afterwards are the last entries, with the number of
// those that are missing.
func TestHistoryOutlivesAnOutage(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			var failures []error
			r := w.recorder(&history.Options{Keep: 10_000, OnError: func(err error) { failures = append(failures, err) }})
			c := w.client(&fencelock.Options{Owner: "c", OnEvent: r.OnEvent})
			w.store.meddle(only(fault, "record"), nil)
			start := time.Now()
			for range 5000 {
				w.release(w.lock(c, "k"))
				synctest.Wait() // so that no event is dropped before
			}
			steps.Same(t, "the outage has delayed the calls by", time.Since(start), 0)
			time.Sleep(time.Minute)
			w.store.heal()
			time.Sleep(time.Minute)
			got := w.history("k")
			if len(got) != 4096 || !strings.HasSuffix(got[0], "(904 missing)") {
				t.Errorf("%d of 5000 grants are remembered, the first as %q; want 4096, and 904 missing", len(got), got[0])
			}
			if len(failures) != 1 || !strings.Contains(failures[0].Error(), "history cannot be written") {
				t.Errorf("it was told of %v", failures)
			}
		})
	}
}

// Close writes what is left, and waits no longer than for the rest.
func TestCloseWritesTheHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.recording("c")
		w.lock(c, "k")
		ok(t, c.Close())
		w.remembers("k", "c waited 0s, held 0s, closed")

		w.store.meddle(only(silent, "record"), nil)
		c = w.recording("c")
		w.release(w.lock(c, "k"))
		start := time.Now()
		ok(t, c.Close())
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Close waited %v for the history", d)
		}
	})
}

// A process that was killed has written that it got the lock.
func TestHistoryOfAKilledProcessHasNoEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.recording("c")
		w.lock(c, "k")
		w.remembers("k", "c waited 0s, holds")
		w.store.meddle(down, nil)
		time.Sleep(time.Minute) // it is lost here, and nobody can be told
		read, err := history.Read(bg, w.store.Store, "k", 1)
		ok(t, err)
		if read[0].Held || !read[0].Ended.IsZero() {
			t.Errorf("the history says %+v", read[0])
		}
	})
}

func TestHistoryOfADetachedLease(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.recording("a"), w.recording("b")
		h := w.detach(a, w.lock(a, "k"))
		w.remembers("k", "a waited 0s, holds")
		ok(t, b.Detached(h).Release(bg))
		w.remembers("k", "a waited 0s, held 1s, released")
	})
}

// bare is a backend without a history.
type bare struct{ driver.Backend }

func TestHistoryThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, o := range []*history.Options{{Keep: -1}, {Keep: 1_000_000}, {For: time.Millisecond}} {
			w.is(errOf(history.New(w.store, o)), fencelock.ErrInvalid)
		}
		for _, b := range []driver.Backend{nil, bare{w.store}} {
			w.is(errOf(history.New(b, nil)), fencelock.ErrInvalid)
			w.is(errOf(history.Read(bg, b, "k", 1)), fencelock.ErrInvalid)
		}
		for key, n := range map[string]int{"k": 0, "": 1, strings.Repeat("k", limit.Key+1): 1} {
			w.is(errOf(history.Read(bg, w.store, key, n)), fencelock.ErrInvalid)
		}
		w.store.meddle(only(down, "history"), nil)
		w.is(errOf(history.Read(bg, w.store, "k", 1)), fencelock.ErrUnavailable, errDown)
		w.store.meddle(only(silent, "history"), nil)
		start := time.Now()
		w.is(errOf(history.Read(bg, w.store, "k", 1)), fencelock.ErrUnavailable)
		tookAtMost(t, start, 10*time.Second)
	})
}

// What did not reach the recorder is missing, too.
func TestHistoryCountsDroppedEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.recorder(nil)
		r.OnEvent(fencelock.Event{
			Type: fencelock.EventAcquired, Key: "k", Standing: fencelock.Standing{Token: 7, Owner: "c"},
			Time: time.Now(), Dropped: 3,
		})
		w.remembers("k", "c waited 0s, no end (3 missing)")
	})
}
