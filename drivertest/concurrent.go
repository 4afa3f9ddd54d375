package drivertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How much the laws about concurrency do.
const (
	workers = 8
	turns   = 12
	races   = 40
)

var concurrentLaws = []law{
	{"OneInsideAtATime", nil, func(w *world, key string) {
		var inside, last atomic.Int64
		w.work(func(v *view, _, _ int) error {
			return v.under(w.claim(key), func(t driver.Ticket) error {
				if n := inside.Add(1); n != 1 {
					return fmt.Errorf("%d are inside at once", n)
				}
				if before := last.Swap(t.Token); w.info.Fencing && before >= t.Token {
					return fmt.Errorf("token %d after token %d", t.Token, before)
				}
				dwell()
				inside.Add(-1)
				return nil
			})
		})
		w.a.empty(key)
	}, "whatever runs at once, one holds, and each with a larger token than the one before"},
	{"WritersAreAlone", nil, func(w *world, key string) {
		var inside atomic.Int64 // readers, or a writer as 1000
		w.work(func(v *view, worker, turn int) error {
			c, weight := w.reader(key), int64(1)
			if (worker+turn)%3 == 0 {
				c, weight = w.claim(key), 1000
			}
			return v.under(c, func(driver.Ticket) error {
				defer inside.Add(-weight)
				if n := inside.Add(weight); n > workers && n != 1000 || n < 1 {
					return fmt.Errorf("a writer is not alone: %d", n)
				}
				dwell()
				return nil
			})
		})
		w.a.empty(key)
	}, "readers overlap, a writer is alone"},
	{"SemaphoreNeverOverflows", semaphore, func(w *world, key string) {
		const size = 5
		var inside atomic.Int64
		w.work(func(v *view, worker, turn int) error {
			weight := int64(1 + (worker+turn)%size)
			return v.under(w.slots(key, weight, size), func(driver.Ticket) error {
				defer inside.Add(-weight)
				if n := inside.Add(weight); n > size {
					return fmt.Errorf("%d slots of %d are taken", n, size)
				}
				dwell()
				return nil
			})
		})
		w.a.empty(key)
	}, "the weights inside never exceed the size, however many come and go"},
	{"OneWinsARace", nil, func(w *world, _ string) {
		for range races / 4 {
			key := w.key()
			var won atomic.Int32
			w.each(senders, func(i int) {
				t, err := w.views()[i%2].try(noWait(w.claim(key)))
				switch {
				case err == nil && t.Granted:
					won.Add(1)
				case !errors.As(err, new(*driver.BusyError)):
					w.t.Errorf("a try answered granted %v, error %v; want a grant or a *BusyError", t.Granted, err)
				}
			})
			n := won.Load()
			w.wrongIf(n != 1, "%d of %d tries at once were granted; want 1", n, senders)
		}
	}, "of all that try at once exactly one is granted: not two, and not none"},
	{"OneClaimOfManyRepeats", nil, func(w *world, _ string) {
		for range races / 4 {
			c := w.claim(w.key())
			tokens := make([]int64, senders)
			w.each(senders, func(i int) {
				t, err := w.a.try(c)
				w.wrongIf(err != nil || !t.Granted, "a repeat answered granted %v and error %v", t.Granted, err)
				tokens[i] = t.Token
			})
			for _, token := range tokens {
				w.wrongIf(token != tokens[0], "repeats of one Enter have the tokens %d and %d", tokens[0], token)
			}
			w.b.counts(c.Key, 1)
		}
	}, "an Enter and its repeat may arrive at once: they are one claim"},
	{"LeaveEndsRenewals", nil, func(w *world, _ string) {
		w.each(races, func(int) {
			t, err := w.a.try(w.claim(w.key()))
			if err != nil {
				w.t.Errorf("Enter: %v", err)
				return
			}
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					same := *t
					err := same.renew()
					w.wrongIf(err != nil && !driver.Gone(err), "Renew beside Leave: %v", err)
				})
			}
			group.Go(func() {
				err := t.leave()
				w.wrongIf(err != nil, "Leave beside Renew: %v", err)
			})
			group.Wait()
			w.b.empty(t.Key)
		})
	}, "a renewal under way when the holder releases must not bring the claim back"},
	{"LeaveWithoutTokenEndsEnter", nil, func(w *world, _ string) {
		w.each(races, func(int) {
			c := w.claim(w.key())
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					_, err := w.a.try(c)
					w.wrongIf(err != nil && !driver.Gone(err), "Enter beside Leave: %v", err)
				})
			}
			group.Go(func() {
				err := w.a.with(driver.Ticket{Claim: c}).leave()
				w.wrongIf(err != nil && !driver.Gone(err), "Leave beside Enter: %v", err)
			})
			group.Wait()
			w.b.empty(c.Key)
		})
	}, "a cancelled Lock: whichever of Enter and Leave arrives first, nobody is in line once both have"},
	{"BreakOrLeaveNotBoth", nil, func(w *world, _ string) {
		w.each(races, func(i int) {
			t, err := w.a.try(w.claim(w.key()))
			if err != nil {
				w.t.Errorf("Enter: %v", err)
				return
			}
			var left, broke error
			ends := []func(){
				func() { left = t.leave() },
				func() { broke = w.b.Break(w.ctx, t.Key, t.Token, "race") },
			}
			var group sync.WaitGroup
			group.Go(ends[i%2])
			group.Go(ends[1-i%2])
			group.Wait()
			ended := left == nil && driver.Gone(broke) || broke == nil && driver.Gone(left)
			w.wrongIf(!ended, "Leave answered %v and Break %v; want one nil and one ErrGone", left, broke)
			w.b.empty(t.Key)
		})
	}, "a claim ends once: its holder released it, or an operator ended it, and both know which"},
}

// work runs workers on both views, each for a number of turns.
func (w *world) work(f func(v *view, worker, turn int) error) {
	w.t.Helper()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for turn := range turns {
				if err := f(w.views()[worker%2], worker, turn); err != nil {
					w.t.Errorf("worker %d, turn %d: %v", worker, turn, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// dwell keeps a lock for long enough that another holder would be seen.
func dwell() { <-time.After(time.Millisecond) }

// under waits for c, runs f, and leaves.
//
// A refused claim comes again with another ID if the store answers ErrGone. A backend
// whose request was sent twice cannot know whether the second copy is still under way,
// so it keeps the ID out. The core does the same.
func (v *view) under(c driver.Claim, f func(t driver.Ticket) error) error {
	x, err := v.try(c)
	for ids := 1; err != nil; x, err = v.try(c) {
		switch {
		case driver.Gone(err) && c.NoWait && ids < maxRounds:
			c.ID = newID()
			ids++
		case !errors.As(err, new(*driver.BusyError)):
			return fmt.Errorf("enter: %w", err)
		}
		select {
		case <-time.After(pollEvery):
		case <-v.w.ctx.Done():
			return v.w.ctx.Err()
		}
	}
	if !x.Granted {
		if x.Ticket, err = x.awaitGrant(v.w.ctx); err != nil {
			return fmt.Errorf("await: %w", err)
		}
	}
	err = f(x.Ticket)
	if left := x.leave(); left != nil && err == nil { // also after a failure, or others wait for minutes
		err = fmt.Errorf("leave: %w", left)
	}
	return err
}
