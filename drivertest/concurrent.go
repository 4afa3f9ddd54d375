package drivertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// How much the laws about concurrency do.
const (
	senders = 16 // goroutines that send what a law needs many of
	workers = 8  // goroutines that hold locks
	turns   = 96 // of all workers together
	races   = 40
)

var concurrentLaws = []law{
	{"OneInsideAtATime", nil, func(w *world, key string) {
		w.manyHold(key, func(int) driver.Claim { return w.claim(key) })
	}, "whatever runs at once, one holds, and each with a larger token than the one before"},
	{"WritersAreAlone", nil, func(w *world, key string) {
		w.manyHold(key, func(i int) driver.Claim {
			if i%3 == 0 {
				return w.claim(key)
			}
			return w.reader(key)
		})
	}, "readers overlap, a writer is alone"},
	{"SemaphoreNeverOverflows", fair, func(w *world, key string) {
		w.manyHold(key, func(i int) driver.Claim { return w.slots(key, int64(1+i%5), 5) })
	}, "the weights inside never exceed the size, however many come and go"},
	{"OneWinsARace", nil, func(w *world, _ string) {
		oneWins[*driver.BusyError](w, func() driver.Claim { return noWait(w.claim(w.key())) })
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
				same(w, "the token of a repeated Enter", token, tokens[0])
			}
			w.b.counts(c.Key, 1)
		}
	}, "an Enter and its repeat may arrive at once: they are one claim"},
	{"LeaveEndsRenewals", nil, func(w *world, _ string) {
		ts := w.enterMany(races, func() driver.Claim { return w.claim(w.key()) })
		w.each(races, func(i int) {
			renews := func() {
				same := *ts[i]
				w.nilOrGone("Renew beside Leave", same.renew())
			}
			together(renews, renews, renews, func() {
				err := ts[i].leave()
				w.wrongIf(err != nil, "Leave beside Renew: %v", err)
			})
			w.b.empty(ts[i].Key)
		})
	}, "a renewal under way when the holder releases must not bring the claim back"},
	{"LeaveWithoutTokenEndsEnter", nil, func(w *world, _ string) {
		w.each(races, func(int) {
			c := w.claim(w.key())
			enters := func() {
				_, err := w.a.try(c)
				w.nilOrGone("Enter beside Leave", err)
			}
			together(enters, enters, func() {
				left := w.a.with(driver.Ticket{Claim: c}).leave(driver.Exit{Tombstone: true})
				w.nilOrGone("Leave beside Enter", left)
			})
			w.b.empty(c.Key)
		})
	}, "a cancelled Lock: whichever of Enter and Leave arrives first, nobody is in line once both have"},
	{"BreakOrLeaveNotBoth", nil, func(w *world, _ string) {
		ts := w.enterMany(races, func() driver.Claim { return w.claim(w.key()) })
		w.each(races, func(i int) {
			t := ts[i]
			var left, broke error
			ends := []func(){
				func() { left = t.leave() },
				func() { broke = w.b.Break(w.ctx, t.Key, t.Token, driver.Break{Reason: "race"}) },
			}
			together(ends[i%2], ends[1-i%2])
			ended := left == nil && driver.Gone(broke) || broke == nil && driver.Gone(left)
			w.wrongIf(!ended, "Leave answered %v and Break %v; want one nil and one GoneError", left, broke)
			w.b.empty(t.Key)
		})
	}, "a claim ends once: its holder released it, or an operator ended it, and both know which"},
	{"LeaveIfWaitingOrGrantNotBoth", fair, func(w *world, _ string) {
		holders := w.enterMany(races, func() driver.Claim { return w.claim(w.key()) })
		waiters := make([]*inLine, races)
		w.each(races, func(i int) { waiters[i] = w.b.waits(w.claim(holders[i].Key)) })
		w.each(races, func(i int) {
			x := waiters[i]
			var freed, left, heard error
			ends := []func(){
				func() { left = x.leave(onlyWaiting) },
				func() { freed = holders[i].leave() },
			}
			together(func() { _, heard = x.awaitGrant(w.ctx) }, ends[i%2], ends[1-i%2])
			w.wrongIf(freed != nil, "Leave of the holder: %v", freed)
			once := left == nil && driver.Gone(heard) || errors.Is(left, driver.ErrGranted) && heard == nil
			w.wrongIf(!once, "Leave returned %v and Await %v; want nil and GoneError, or ErrGranted and nil",
				left, heard)
			w.b.counts(x.Key, map[bool]int{true: 0, false: 1}[left == nil])
		})
	}, "the wait ends in the instant of the grant: the claim has left or is granted, and everybody is told the same"},
}

// enterMany enters n claims, several at a time.
func (w *world) enterMany(n int, claim func() driver.Claim) []*inLine {
	ts := make([]*inLine, n)
	w.each(n, func(i int) {
		t, err := w.a.try(claim())
		w.wrongIf(err != nil, "Enter %d of %d: %v", i, n, err)
		ts[i] = t
	})
	if w.t.Failed() {
		w.t.Fatalf("not everybody could enter")
	}
	return ts
}

// each calls f for 0 to n-1, several at a time, and ends the law if a call of f did.
func (w *world) each(n int, f func(i int)) {
	var done atomic.Int64
	pool(senders, n, func(i int) {
		f(i)
		done.Add(1)
	})
	if int(done.Load()) != n {
		w.t.Fatalf("not every one of %d steps at once could be done", n)
	}
}

// pool calls f for 0 to n-1 on some goroutines.
func pool(goroutines, n int, f func(i int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range min(n, goroutines) {
		group.Go(func() {
			defer func() { // f may have ended this goroutine, by Fatalf
				for range next {
				}
			}()
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// together calls all of fs at once.
func together(fs ...func()) {
	var group sync.WaitGroup
	for _, f := range fs {
		group.Go(f)
	}
	group.Wait()
}

// manyHold has workers on both views hold the claims of key for a moment each.
func (w *world) manyHold(key string, claim func(i int) driver.Claim) {
	var inside, last atomic.Int64
	pool(workers, turns, func(i int) {
		if w.t.Failed() {
			return
		}
		c := claim(i)
		err := w.views()[i%2].under(c, func(t driver.Ticket) {
			n := inside.Add(c.Weight)
			w.wrongIf(n > c.Capacity, "a weight of %d is inside; want %d at most", n, c.Capacity)
			if driverutil.Exclusive(&c) {
				before := last.Swap(t.Token)
				w.wrongIf(before >= t.Token, "token %d after token %d", t.Token, before)
			}
			<-time.After(time.Millisecond) // long enough for another holder to be seen
			inside.Add(-c.Weight)
		})
		w.wrongIf(err != nil, "turn %d: %v", i, err)
	})
	w.a.empty(key)
}

// under waits for c, runs f, and leaves. It draws another ID when a refused one is kept out, as
// the core does: a backend that sent a request twice cannot know whether it is still under way.
func (v *view) under(c driver.Claim, f func(t driver.Ticket)) error {
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
		t, err := x.awaitGrant(v.w.ctx)
		if err != nil {
			_ = x.leave() // or the others wait for this claim until the law's time is over
			return fmt.Errorf("await: %w", err)
		}
		x.Ticket = t
	}
	f(x.Ticket)
	if err := x.leave(); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// oneWins sends a claim many times at once, each with an ID of its own. One must be
// granted, and the others refused with an error of type E.
func oneWins[E error](w *world, claim func() driver.Claim) {
	for range races / 4 {
		first := claim()
		var won atomic.Int32
		w.each(senders, func(i int) {
			c := first
			c.ID = newID()
			t, err := w.views()[i%2].try(c)
			if err != nil {
				asA[E](w, "a try that lost", err)
				return
			}
			won.Add(1)
			w.wrongIf(!t.Granted || c.Ballot != 0 && t.Token != c.Ballot,
				"a try with ballot %d answered %+v; want a grant with that token", c.Ballot, t.Ticket)
		})
		same(w, "tries at once that were granted", won.Load(), int32(1))
	}
}

// nilOrGone holds err to what a call may answer beside one that ends its claim.
func (w *world) nilOrGone(what string, err error) {
	w.wrongIf(err != nil && !driver.Gone(err), "%s: %v", what, err)
}
