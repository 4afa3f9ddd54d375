package fencelock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

var noon = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

// job is a function for Once that counts its runs.
type job struct{ runs int }

func (j *job) run(context.Context, *fencelock.Lease) error {
	j.runs++
	return nil
}

// ranIs checks what a Once answered.
func ranIs(t *testing.T, want, ran bool, err error) {
	t.Helper()
	if ran != want || err != nil {
		t.Errorf("ran %v, %v; want %v", ran, err, want)
	}
}

func (w *world) once(c *fencelock.Client, slot time.Time, j *job, wantRan bool, opts ...fencelock.Option) {
	w.Helper()
	before := j.runs
	ran, err := c.Once(bg, "k", slot, j.run, opts...)
	if ran != wantRan || err != nil || (j.runs > before) != wantRan {
		w.Errorf("slot %v: ran %v, %v (%d runs); want %v", slot, ran, err, j.runs-before, wantRan)
	}
}

// passed wants a slot to be refused because a later one is done.
func (w *world) passed(c *fencelock.Client, slot time.Time, j *job) {
	w.Helper()
	before := j.runs
	ran, err := c.Once(bg, "k", slot, j.run)
	if ran || !errors.Is(err, fencelock.ErrSlotPassed) || j.runs > before {
		w.Errorf("slot %v: ran %v, %v; want ErrSlotPassed", slot, ran, err)
	}
	w.free("k")
}

func TestOnceRunsASlotOnceOverAllMachines(t *testing.T) {
	inWorld(t, func(w *world) {
		var runs, succeeded atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			c := w.client(nil)
			for range 5 {
				wg.Go(func() {
					ran, err := c.Once(bg, "k", noon, func(context.Context, *fencelock.Lease) error {
						runs.Add(1)
						time.Sleep(time.Millisecond) // the others come to wait
						return nil
					})
					ok(t, err)
					if ran {
						succeeded.Add(1)
					}
				})
			}
		}
		wg.Wait()
		steps.Same(t, "runs", runs.Load(), 1)
		steps.Same(t, "calls that report a run", succeeded.Load(), 1)
	})
}

// Slots are ordered times: a slot is done when it, or a later one, has been finished.
func TestSlotsAreOrdered(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		var j job
		w.once(a, noon, &j, true)
		w.once(b, noon, &j, false)
		w.passed(b, noon.Add(-time.Hour), &j)
		w.once(b, noon.Add(time.Nanosecond), &j, true)
		w.passed(a, noon, &j)
		// The same instant elsewhere, and text that would sort wrongly.
		east := time.FixedZone("east", 9*3600)
		w.once(a, noon.Add(time.Nanosecond).In(east), &j, false)
		w.once(a, noon.Add(time.Hour).In(east), &j, true)
		w.once(a, noon.Add(90*time.Minute).In(time.FixedZone("west", -9*3600)), &j, true)
		w.once(a, time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), &j, true)
		w.passed(a, time.Date(9999, 12, 31, 23, 59, 59, 999999998, time.UTC), &j)
	})
}

func TestZeroSlotIsOnceForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		var j job
		w.once(a, time.Time{}, &j, true)
		time.Sleep(90 * time.Hour) // marks do not expire
		w.once(b, time.Time{}, &j, false)
		// A key that has slots has been run, too.
		ok(t, errOf(b.Once(bg, "slots", noon, j.run)))
		ran, err := b.Once(bg, "slots", time.Time{}, j.run)
		ranIs(t, false, ran, err)
	})
}

func TestPanicLeavesTheSlotOpen(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		func() {
			defer func() { steps.Same(t, "recovered", recover(), any(errWork)) }()
			_, _ = a.Once(bg, "k", noon, func(context.Context, *fencelock.Lease) error { panic(errWork) })
		}()
		w.free("k")
		var j job
		w.once(b, noon, &j, true)
	})
}

func TestOnceWaitsWhileAnotherRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(&fencelock.Options{Owner: "runner"}), w.client(nil)
		running := w.begin(func() (*fencelock.Lease, error) {
			_, err := a.Once(bg, "k", noon, func(ctx context.Context, l *fencelock.Lease) error {
				steps.Same(t, "f runs under", fencelock.Held(ctx, "k"), l)
				time.Sleep(time.Hour)
				return nil
			})
			return nil, err
		})
		var j job
		ran, err := b.Once(bg, "k", noon, j.run, fencelock.Wait(0))
		if h := w.held(err); ran || h.Owner != "runner" {
			t.Error(ran, h)
		}
		start := time.Now()
		w.once(b, noon, &j, false)
		took(t, start, time.Hour)
		ok(t, errOf(running.wait()))
	})
}

// The lease was lost while f ran: somebody else may have run it meanwhile, so the
// slot is not noted, and the caller hears of it.
func TestRunWithALostLeaseDoesNotFinishTheSlot(t *testing.T) {
	for name, ferr := range map[string]error{"f succeeds": nil, "f fails": errWork} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			ran, err := a.Once(bg, "k", noon, func(ctx context.Context, l *fencelock.Lease) error {
				ok(t, b.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy"}))
				<-ctx.Done()
				return ferr
			})
			steps.Same(t, "it ran", ran, true)
			w.is(err, fencelock.ErrLost, fencelock.ErrBroken)
			if ferr != nil {
				w.is(err, ferr)
			}
			var j job
			w.once(b, noon, &j, true)
		})
	}
}

// The reply to the release that carries the mark is lost, or the mark itself. In
// both cases the caller hears that nobody knows.
func TestUnconfirmedMarkIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(context.Context, string) error
		heal          bool
		again         bool // whether the slot may be run again
	}{
		"the reply was lost":         {after: only(down, "leave"), heal: true},
		"the mark came late":         {before: only(down, "leave"), heal: true},
		"the mark never came":        {before: only(down, "leave"), again: true},
		"all replies were lost":      {after: only(down, "leave")},
		"it stayed silent for a day": {before: only(silent, "leave"), again: true},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			var j job
			ran, err := a.Once(bg, "k", noon, func(ctx context.Context, l *fencelock.Lease) error {
				w.store.meddle(c.before, c.after)
				return j.run(ctx, l)
			})
			if !ran || j.runs != 1 {
				t.Error(ran, j.runs)
			}
			if c.after == nil {
				w.is(err, fencelock.ErrUnavailable)
				w.not(err, fencelock.ErrLost)
			}
			if c.heal {
				w.store.heal()
			}
			time.Sleep(time.Minute)
			w.store.heal()
			w.once(b, noon, &j, c.again)
		})
	}
}

func TestOnceUnderACancelledContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		ctx, cancel := context.WithCancel(bg)
		ran, err := c.Once(ctx, "k", noon, func(context.Context, *fencelock.Lease) error { cancel(); return nil })
		if !ran || err != nil {
			t.Errorf("the work succeeded: %v, %v", ran, err)
		}
		var j job
		w.once(c, noon, &j, false)
	})
}

// The slot is noted in the step that gives the lock back. If f has done that itself,
// nothing was noted, and a success would be a lie: the next one runs it again.
func TestRunThatReleasesItsLeaseDoesNotFinishTheSlot(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		ran, err := c.Once(bg, "k", noon, func(_ context.Context, l *fencelock.Lease) error { return l.Release(bg) })
		steps.Same(t, "it ran", ran, true)
		w.is(err, fencelock.ErrReleased)
		var j job
		w.once(c, noon, &j, true)
	})
}

// f has given a share of its lease away, and that one is still held: the key is not
// free, so the slot is noted only when it is.
func TestRunThatKeepsASharedLeaseIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		var in *fencelock.Lease
		ran, err := c.Once(bg, "k", noon, func(ctx context.Context, _ *fencelock.Lease) error {
			in = w.got(c.Lock(ctx, "k", fencelock.Reentrant()))
			return nil
		})
		steps.Same(t, "it ran", ran, true)
		w.is(err, fencelock.ErrInvalid)
		w.taken("k")
		w.release(in)
		var j job
		w.once(c, noon, &j, false)
	})
}

func TestOnceKeepsItsOptions(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		ran, err := c.Once(bg, "k", noon, func(ctx context.Context, _ *fencelock.Lease) error {
			<-ctx.Done()
			return nil
		}, fencelock.MaxHold(time.Minute), fencelock.Note("report"))
		steps.Same(t, "it ran", ran, true)
		w.is(err, fencelock.ErrMaxHold)

		// MinHold keeps machines with slow clocks out, but not after a run that was not needed.
		var j job
		w.once(c, noon, &j, true, fencelock.MinHold(time.Minute))
		w.taken("k")
		time.Sleep(time.Minute)
		w.once(c, noon, &j, false, fencelock.MinHold(time.Minute))
		w.free("k")
	})
}

// It is done, and that is known, even if giving back the lock fails.
func TestOnceOfADoneSlotDoesNotFailBecauseOfItsRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		var j job
		w.once(c, noon, &j, true)
		w.store.meddle(only(down, "leave"), nil)
		w.once(c, noon, &j, false)
	})
}

func TestMarkHoldsSlotTimeAndOwner(t *testing.T) {
	inWorld(t, func(w *world) {
		owner := "owner with spaces\n和 text"
		c := w.client(&fencelock.Options{Owner: owner})
		var j job
		time.Sleep(time.Hour)
		w.once(c, noon, &j, true)
		line := w.line(c, "k")
		if !line.Slot.Equal(noon) || !line.Done.Equal(time.Now()) || line.DoneBy != owner {
			t.Errorf("%+v", line)
		}
		ok(t, errOf(c.Once(bg, "ever", time.Time{}, j.run)))
		line = w.line(c, "ever")
		if line.Done.IsZero() || !line.Slot.IsZero() {
			t.Errorf("%+v", line)
		}
		for _, m := range []string{"ever", "a b c", "2000-01-01T12:00:00Z x o"} {
			// As a later Once finds it, if another program left it.
			l, err := w.store.Enter(bg, steps.Claim(m+"?"))
			must(t, err)
			must(t, w.store.Leave(bg, l, driver.Exit{Mark: m}))
			if line, err := c.Line(bg, l.Key); err != nil || !line.Done.IsZero() {
				t.Errorf("%q was read as %+v, %v", m, line, err)
			}
		}
	})
}
