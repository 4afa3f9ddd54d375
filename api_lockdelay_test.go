package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

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

func TestReleaseHasNoLockDelay(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k", fencelock.LockDelay(lockDelay), fencelock.TTL(5*time.Second))
		time.Sleep(time.Hour) // it is renewed in time, though its delay is longer than its TTL
		ok(t, l.Err())
		w.release(l)
		w.free("k")
	})
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
			{fencelock.FixedLease(time.Minute), fencelock.LockDelay(time.Second)},
		} {
			_, err := c.TryLock(bg, "k", opts...)
			w.is(err, fencelock.ErrInvalid)
		}
		l := w.lock(c, "k", fencelock.LockDelay(lockDelay))
		_, err := c.Detach(bg, l)
		w.is(err, fencelock.ErrInvalid)
		_, err = c.Lock(l.Context(), "k", fencelock.Reentrant(), fencelock.LockDelay(lockDelay))
		w.is(err, fencelock.ErrInvalid)
		w.release(l)

		// ZooKeeper says only then how long its leases are.
		w.store.shorten = 4 * time.Second
		_, err = c.Lock(bg, "k", fencelock.LockDelay(lockDelay))
		w.is(err, fencelock.ErrInvalid)
		w.store.shorten = 0
		w.free("k")
	})
}
