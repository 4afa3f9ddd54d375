package fencelock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// Through the Client that holds, Break has taken effect when it returns; through
// another one too if the backend pushes.
func TestBreakEndsTheGrantWithItsReason(t *testing.T) {
	for _, how := range []string{"own client", "other client", "without a reason"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			holder, other := w.client(nil), w.client(nil)
			l := w.lock(holder, "k")
			by, reason, says := holder, "deploy of v2", "deploy of v2"
			switch how {
			case "other client":
				by = other
			case "without a reason":
				reason, says = "", "operator"
			}
			must(t, by.Break(bg, "k", l.Token(), fencelock.Break{Reason: reason}))
			w.is(l.Context().Err(), context.Canceled)
			for _, err := range []error{l.Err(), context.Cause(l.Context()), l.Release(bg)} {
				w.is(err, fencelock.ErrBroken, fencelock.ErrLost)
				w.says(err, says)
			}
			w.free("k")
			w.steps("enter", "break")
		})
	}
}

// Any token of the span of a claim will do.
func TestBreakMatchesAnyTokenOfTheSpan(t *testing.T) {
	for _, add := range []int64{0, 5} {
		inWorld(t, func(w *world) {
			// A backend that does not push: what Break ends here, it ends by itself.
			c := w.mute(&fencelock.Options{HandOff: 6})
			l1 := w.lock(c, "k")
			k := w.later(c, "k")
			w.release(l1)
			l2 := w.got(k.wait())
			steps.Same(t, "the token of the next", l2.Token(), l1.Token()+1)
			must(t, c.Break(bg, "k", l1.Token()+fence.Token(add), fencelock.Break{Reason: "deploy"}))
			w.is(l2.Err(), fencelock.ErrBroken)
			w.is(l1.Err(), fencelock.ErrReleased)
			w.free("k")
		})
	}
}

// A waiting claim ends at once, also by a Break with notice.
func TestBreakOfAWaitingClaimEndsTheWaiting(t *testing.T) {
	for _, notice := range []time.Duration{0, time.Hour} {
		for _, own := range []bool{true, false} {
			runInWorld(t, fmt.Sprintf("own client %v, notice %v", own, notice), func(t *testing.T, w *world) {
				a, b := w.client(nil), w.client(nil)
				first := w.lock(a, "k")
				front, behind := w.later(b, "k"), w.later(b, "k")
				line, err := a.Line(bg, "k")
				if err != nil || len(line.Claims) != 2 {
					t.Fatalf("%+v, %v", line, err)
				}
				by := a
				if own {
					by = b
				}
				must(t, by.Break(bg, "k", line.Claims[1].Token, fencelock.Break{Reason: "not you", Notice: notice}))
				if !front.over() || behind.over() {
					t.Fatal("the front should hear it, the one behind should join the line")
				}
				steps.Is(t, "the front", front.err, fencelock.ErrBroken)
				w.says(front.err, "not you")
				ok(t, first.Err())
				w.release(first)
				w.release(w.got(behind.wait()))
			})
		}
	}
}

const lockDelay = 20 * time.Second

// However a lease ends without a release, nobody is granted the key for LockDelay after the
// holder has been told, also when the holder tidies up with Release.
func TestLockDelayFollowsALoss(t *testing.T) {
	ends := map[string]struct {
		opt   fencelock.Option
		cause error
		lose  func(w *world, c *fencelock.Client)
	}{
		"expired": {fencelock.TTL(10 * time.Second), fencelock.ErrExpired, func(w *world, _ *fencelock.Client) {
			time.Sleep(time.Minute)
			w.store.meddle(only(down, "renew", "leave"), nil)
		}},
		"max hold": {fencelock.MaxHold(time.Minute), fencelock.ErrMaxHold, func(*world, *fencelock.Client) {}},
		"stalled":  {fencelock.Progress(time.Minute), fencelock.ErrStalled, func(*world, *fencelock.Client) {}},
		"closed": {fencelock.TTL(10 * time.Second), fencelock.ErrClosed, func(w *world, c *fencelock.Client) {
			ok(w.T, c.Close())
		}},
	}
	for name, end := range ends {
		for _, released := range []bool{false, true} {
			if released {
				name += ", then released"
			}
			runInWorld(t, name, func(t *testing.T, w *world) {
				a, b := w.client(nil), w.client(nil)
				l := w.lock(a, "k", fencelock.LockDelay(lockDelay), end.opt)
				end.lose(w, a)
				<-l.Context().Done()
				w.is(context.Cause(l.Context()), fencelock.ErrLost, end.cause)
				told := time.Now()
				w.store.heal()
				if released {
					w.is(l.Release(bg), fencelock.ErrLost)
				}
				x := w.lock(b, "k")
				if apart := time.Since(told); apart < lockDelay || apart > lockDelay+fencelock.DefaultTTL+time.Second {
					t.Errorf("the key was granted %v after the loss", apart)
				}
				w.release(x)
			})
		}
	}
}

// Close does not wait for the delay of a lease that was lost.
func TestCloseLeavesALockDelayToTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k", fencelock.LockDelay(lockDelay), fencelock.MaxHold(time.Second))
		<-l.Context().Done()
		begun := time.Now()
		ok(t, c.Close())
		tookAtMost(t, begun, 0)
		w.taken("k")
		time.Sleep(lockDelay + fencelock.DefaultTTL)
		w.free("k")
	})
}

func TestLockDelayThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MaxTTL = time.Minute
		c := w.client(nil)
		for _, opts := range [][]fencelock.Option{
			{fencelock.LockDelay(-1)},
			{fencelock.LockDelay(31 * time.Second)}, // with the TTL of 30 s
			{fencelock.NoRenewal(), fencelock.TTL(time.Minute), fencelock.LockDelay(time.Second)},
		} {
			w.is(errOf(c.TryLock(bg, "k", opts...)), fencelock.ErrInvalid)
		}
		l := w.lock(c, "k", fencelock.LockDelay(lockDelay))
		w.is(errOf(c.Detach(bg, l)), fencelock.ErrInvalid)
		w.is(errOf(c.Lock(l.Context(), "k", fencelock.Reentrant(), fencelock.LockDelay(lockDelay))), fencelock.ErrInvalid)
		w.release(l)

		// ZooKeeper says only then how long its leases are.
		w.store.shorten = 4 * time.Second
		w.is(errOf(c.Lock(bg, "k", fencelock.LockDelay(lockDelay))), fencelock.ErrInvalid)
		w.store.shorten = 0
		w.free("k")
	})
}

// Nobody is granted the key before the delay is over, and the holder hears of the break at once.
func TestBreakWithALockDelay(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k", fencelock.LockDelay(time.Hour)) // the Break has another
		next := w.later(b, "k")
		behind := w.later(b, "k")
		start := time.Now()
		must(t, b.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy", Delay: lockDelay}))
		w.is(l.Err(), fencelock.ErrBroken)
		w.is(l.Release(bg), fencelock.ErrBroken)
		line := w.line(b, "k")
		if h := line.Claims; len(h) != 2 || !h[0].Lingering || h[0].Token != l.Token() || h[0].Left != lockDelay {
			t.Errorf("the line is %+v", line)
		}
		n := w.got(next.wait())
		took(t, start, lockDelay)
		steps.Rises(t, l.Token(), n.Token())
		w.release(n)
		w.release(w.got(behind.wait()))
	})
}

func TestLockDelayOfABreakThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL, w.store.info.MaxTTL = time.Second, time.Minute
		c := w.client(nil)
		l := w.lock(c, "k")
		refused := func(says string, delay time.Duration) {
			t.Helper()
			err := c.Break(bg, "k", l.Token(), fencelock.Break{Delay: delay})
			w.is(err, fencelock.ErrInvalid)
			w.says(err, says)
		}
		refused("at most 1m0s", time.Hour)
		w.store.info.Linger = false
		other := w.client(nil)
		w.is(other.Break(bg, "k", l.Token(), fencelock.Break{Delay: time.Second}), fencelock.ErrInvalid)
		ok(t, l.Err())
		w.taken("k")
		must(t, c.Break(bg, "k", l.Token(), fencelock.Break{Delay: time.Millisecond}))
		time.Sleep(time.Second - time.Millisecond)
		w.taken("k")
		time.Sleep(time.Millisecond)
		w.free("k")
	})
}

// A program released its lock while the store was away for a moment, and closed its Client. The
// key stayed closed for the rest of the lease and the delay, as after a loss.
func TestCloseSendsWhatIsOwedInSpiteOfALockDelay(t *testing.T) {
	for name, owe := range map[string]func(w *world, c *fencelock.Client){
		"a release": func(w *world, c *fencelock.Client) {
			l := w.lock(c, "k", fencelock.LockDelay(lockDelay))
			w.store.meddle(down, nil)
			w.is(l.Release(bg), fencelock.ErrUnavailable)
		},
		"the place of a call that was cancelled": func(w *world, c *fencelock.Client) {
			holder := w.lock(c, "k", fencelock.MinHold(0))
			ctx, cancel := context.WithCancel(bg)
			waits := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k", fencelock.LockDelay(lockDelay)) })
			w.release(holder)
			w.store.meddle(down, nil)
			cancel()
			if l, err := waits.wait(); err == nil {
				w.is(l.Release(bg), fencelock.ErrUnavailable)
			}
		},
		"the place of a call whose request got no answer": func(w *world, c *fencelock.Client) {
			w.store.meddle(nil, down)
			w.is(errOf(c.Lock(bg, "k", fencelock.LockDelay(lockDelay), fencelock.Wait(time.Second))), fencelock.ErrUnavailable)
		},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.client(nil)
			owe(w, c)
			time.Sleep(700 * time.Millisecond) // some Leaves have failed, and none is under way
			w.store.heal()
			ok(t, c.Close())
			w.free("k")
		})
	}
}
