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
	{
		name: "OneInsideAtATime",
		why:  "whatever runs at once, one holds, and each with a larger token than the one before",
		check: func(w *world) {
			key := w.key()
			var inside, last atomic.Int64
			w.work(func(b driver.Backend, worker, turn int) error {
				return w.under(b, w.claim(key), func(t driver.Ticket) error {
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
			w.empty(w.a, key)
		},
	},
	{
		name: "WritersAreAlone",
		why:  "readers overlap, a writer is alone",
		check: func(w *world) {
			key := w.key()
			var inside atomic.Int64 // readers, or a writer as 1000
			w.work(func(b driver.Backend, worker, turn int) error {
				c, weight := w.reader(key), int64(1)
				if (worker+turn)%3 == 0 {
					c, weight = w.claim(key), 1000
				}
				return w.under(b, c, func(driver.Ticket) error {
					defer inside.Add(-weight)
					if n := inside.Add(weight); n > workers && n != 1000 || n < 1 {
						return fmt.Errorf("a writer is not alone: %d", n)
					}
					dwell()
					return nil
				})
			})
			w.empty(w.a, key)
		},
	},
	{
		name: "SemaphoreNeverOverflows",
		when: semaphore,
		why:  "the weights inside never exceed the size, however many come and go",
		check: func(w *world) {
			key := w.key()
			const size = 5
			var inside atomic.Int64
			w.work(func(b driver.Backend, worker, turn int) error {
				weight := int64(1 + (worker+turn)%size)
				return w.under(b, w.slots(key, weight, size), func(driver.Ticket) error {
					defer inside.Add(-weight)
					if n := inside.Add(weight); n > size {
						return fmt.Errorf("%d slots of %d are taken", n, size)
					}
					dwell()
					return nil
				})
			})
			w.empty(w.a, key)
		},
	},
	{
		name: "OneWinsARace",
		why:  "of all that try at once exactly one is granted: not two, and not none",
		check: func(w *world) {
			for range races / 4 {
				key := w.key()
				var won atomic.Int32
				w.each(senders, func(i int) {
					b := []driver.Backend{w.a, w.b}[i%2]
					t, err := w.try(b, noWait(w.claim(key)))
					var busy *driver.BusyError
					switch {
					case err == nil && t.Granted:
						won.Add(1)
					case !errors.As(err, &busy):
						w.t.Errorf("a try answered granted %v and error %v; want a grant or a *BusyError", t.Granted, err)
					}
				})
				if n := won.Load(); n != 1 {
					w.t.Errorf("%d of %d tries at once were granted; want 1", n, senders)
				}
			}
		},
	},
	{
		name: "OneClaimOfManyRepeats",
		why:  "an Enter and its repeat may arrive at once: they are one claim",
		check: func(w *world) {
			for range races / 4 {
				c := w.claim(w.key())
				tokens := make([]int64, senders)
				w.each(senders, func(i int) {
					t, err := w.try(w.a, c)
					if err != nil || !t.Granted {
						w.t.Errorf("a repeat answered granted %v and error %v", t.Granted, err)
					}
					tokens[i] = t.Token
				})
				for _, token := range tokens {
					if token != tokens[0] {
						w.t.Errorf("repeats of one Enter have the tokens %d and %d", tokens[0], token)
					}
				}
				if n := len(w.line(w.b, c.Key).Claims); n != 1 {
					w.t.Errorf("%d claims are in line after repeats of one Enter; want 1", n)
				}
			}
		},
	},
	{
		name: "LeaveEndsRenewals",
		why:  "a renewal under way when the holder releases must not bring the claim back",
		check: func(w *world) {
			w.each(races, func(int) {
				t, err := w.try(w.a, w.claim(w.key()))
				if err != nil {
					w.t.Errorf("Enter: %v", err)
					return
				}
				var group sync.WaitGroup
				for range 3 {
					group.Go(func() {
						for _, err := range w.a.Renew(w.ctx, []driver.Ticket{t}) {
							if err != nil && !driver.Gone(err) {
								w.t.Errorf("Renew beside Leave: %v", err)
							}
						}
					})
				}
				group.Go(func() {
					if err := w.a.Leave(w.ctx, t, driver.Exit{}); err != nil {
						w.t.Errorf("Leave beside Renew: %v", err)
					}
				})
				group.Wait()
				w.nobody(t.Key)
			})
		},
	},
	{
		name: "LeaveWithoutTokenEndsEnter",
		why:  "a cancelled Lock: whichever of Enter and Leave arrives first, nobody is in line once both have",
		check: func(w *world) {
			w.each(races, func(int) {
				c := w.claim(w.key())
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() {
						if _, err := w.try(w.a, c); err != nil && !driver.Gone(err) {
							w.t.Errorf("Enter beside Leave: %v", err)
						}
					})
				}
				group.Go(func() {
					if err := w.a.Leave(w.ctx, driver.Ticket{Claim: c}, driver.Exit{}); err != nil && !driver.Gone(err) {
						w.t.Errorf("Leave beside Enter: %v", err)
					}
				})
				group.Wait()
				w.nobody(c.Key)
			})
		},
	},
	{
		name: "BreakOrLeaveNotBoth",
		why:  "a claim ends once: its holder released it, or an operator ended it, and both know which",
		check: func(w *world) {
			w.each(races, func(i int) {
				t, err := w.try(w.a, w.claim(w.key()))
				if err != nil {
					w.t.Errorf("Enter: %v", err)
					return
				}
				var left, broke error
				ends := []func(){
					func() { left = w.a.Leave(w.ctx, t, driver.Exit{}) },
					func() { broke = w.b.Break(w.ctx, t.Key, t.Token, "race") },
				}
				var group sync.WaitGroup
				group.Go(ends[i%2])
				group.Go(ends[1-i%2])
				group.Wait()
				if (left == nil) == (broke == nil) || left != nil && !driver.Gone(left) || broke != nil && !driver.Gone(broke) {
					w.t.Errorf("Leave answered %v and Break %v; want one nil and one ErrGone", left, broke)
				}
				w.nobody(t.Key)
			})
		},
	},
}

// work runs workers on both views, each for a number of turns.
func (w *world) work(f func(b driver.Backend, worker, turn int) error) {
	w.t.Helper()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for turn := range turns {
				b := []driver.Backend{w.a, w.b}[worker%2]
				if err := f(b, worker, turn); err != nil {
					w.t.Errorf("worker %d, turn %d: %v", worker, turn, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// dwell keeps a lock for long enough that another holder would be seen.
func dwell() {
	timer := time.NewTimer(time.Millisecond)
	<-timer.C
}

// under waits for c, runs f, and leaves.
func (w *world) under(b driver.Backend, c driver.Claim, f func(t driver.Ticket) error) error {
	t, err := w.try(b, c)
	var busy *driver.BusyError
	for errors.As(err, &busy) { // nobody can wait in line
		timer := time.NewTimer(pollEvery)
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
		t, err = w.try(b, c)
	}
	if err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	for calls := 0; !t.Granted; calls++ {
		if calls > mostCalls {
			return errSpin
		}
		if t, err = b.Await(w.ctx, t); err != nil {
			return fmt.Errorf("await: %w", err)
		}
	}
	if err := f(t); err != nil {
		return err
	}
	if err := b.Leave(w.ctx, t, driver.Exit{}); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// nobody must find no claim on key. Unlike empty it may be called from any
// goroutine.
func (w *world) nobody(key string) {
	for l, err := range w.b.Lines(w.ctx, key) {
		if err != nil {
			w.t.Errorf("Lines: %v", err)
			return
		}
		if l.Key == key {
			w.t.Errorf("the line of %q still has %+v; want nobody", key, l.Claims)
		}
	}
}
