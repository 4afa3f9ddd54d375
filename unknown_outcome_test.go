package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

func TestLostReplyToEnterMakesOneClaim(t *testing.T) {
	// The Enter is applied and its reply is lost. Asked again with the same ID, the
	// store finds the claim; with a new one it would queue behind itself.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			k, err := do()
			if len(b.entered()) == 1 {
				return driver.Ticket{}, errCut
			}
			return k, err
		}
		begin := time.Now()
		l := mustLock(t, c, "k")
		tookAtMost(t, begin, ttl/3)
		if e := b.entered(); len(e) != 2 || e[0].ID != e[1].ID {
			t.Errorf("Enters: %+v", e)
		}
		mustRelease(t, l)
		if !b.left()[0].exit.Tombstone {
			t.Error("the release after a repeated Enter leaves no tombstone: a delayed copy of the first Enter would be a ghost")
		}
	})
}

func TestDelayedEnterAfterReleaseIsNoGhost(t *testing.T) {
	// The first Enter hangs in the network. The second one is granted, and released.
	// Then the first one arrives.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		arrived := make(chan struct{})
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if len(b.entered()) == 1 {
				go func() {
					after(5 * time.Second)
					if _, err := do(); !driver.Gone(err) {
						t.Errorf("the delayed Enter was answered %v", err)
					}
					close(arrived)
				}()
				return driver.Ticket{}, errCut
			}
			return do()
		}
		mustRelease(t, mustLock(t, c, "k"))
		<-arrived
		wantEmpty(t, s)
	})
}

// slowEnter takes a while before the request arrives, and again before its answer does.
func slowEnter(ctx context.Context, _ driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done(): // the request is on its way all the same
		go func() { after(50 * time.Millisecond); do() }()
		return driver.Ticket{}, ctx.Err()
	}
	k, err := do()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
	return k, err
}

//verify:fault The API, on all stores | the context ends at each step
func TestCancelledLockLeavesNothing(t *testing.T) {
	// The call is cancelled at each of a hundred moments of an acquisition that takes
	// a while: before Enter is applied, after, in line, at the grant.
	for step := range 100 {
		bubble(t, func(t *testing.T, s *memlock.Store) {
			holder := plain(t, s)
			l := mustLock(t, holder, "k")
			b := newTap(s)
			b.enter = slowEnter
			for _, handOff := range []int{1, 8} {
				c := testclient.New(t, b, &fencelock.Options{TTL: ttl, HandOff: handOff})
				ctx, cancel := context.WithCancelCause(context.Background())
				why := errors.New("the user went home")
				time.AfterFunc(time.Duration(step)*5*time.Millisecond+time.Microsecond, func() { cancel(why) })
				if step == 50 {
					time.AfterFunc(250*time.Millisecond, func() { l.Release(context.Background()) })
				}
				begin := time.Now()
				got, err := c.Lock(ctx, "k")
				if late := time.Since(begin) - time.Duration(step)*5*time.Millisecond; late > time.Millisecond {
					t.Errorf("it returned %v after it was cancelled", late)
				}
				switch {
				case err == nil:
					mustRelease(t, got)
				case !errors.Is(err, context.Canceled) || !errors.Is(err, why):
					t.Errorf("step %d: %v", step, err)
				case step > 40 && !errors.Is(err, fencelock.ErrNotAcquired):
					t.Errorf("step %d: in line, and not ErrNotAcquired: %v", step, err)
				}
				after(time.Second)
				want := 1 // the holder's
				if step == 50 {
					want = 0
				}
				if line, _ := s.Line(context.Background(), "k"); len(line.Claims) != want {
					t.Errorf("step %d, hand-off %d: want %d in line: %+v", step, handOff, want, line.Claims)
				}
				c.Close()
			}
			l.Release(context.Background())
		})
	}
}

func TestWaiterThatExpiredEntersAgainAtTheTail(t *testing.T) {
	// The store does not answer one process for longer than a lease. Its claim has left
	// the line; when the store is back, it queues again, behind those who came meanwhile.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := client(t, newTap(s), &fencelock.Options{TTL: ttl, HandOff: 1})
		l := mustLock(t, holder, "k")
		b, c := tapped(t, s)
		first := lockLater(t, c)
		synctest.Wait()
		cut := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		b.set(func() {
			b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, cut(ctx)) }
			b.await = func(ctx context.Context, k driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
				return k, cut(ctx)
			}
			b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
				return driver.Ticket{}, cut(ctx)
			}
		})
		after(ttl + 5*time.Second)
		second := lockLater(t, holder)
		synctest.Wait()
		b.set(func() { b.renew, b.await, b.enter = nil, nil, nil })
		after(10 * time.Second)
		mustRelease(t, l)
		l2 := <-second
		nothing(t, first, "granted beside the one that holds it")
		mustRelease(t, l2)
		l1 := <-first
		rises(t, l2.Token(), l1.Token())
		mustRelease(t, l1)
		after(time.Second)
	})
}

func TestLockRidesOutAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		end := time.Now().Add(5 * time.Minute)
		var pauses []time.Time
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			pauses = append(pauses, time.Now())
			if time.Now().Before(end) {
				return driver.Ticket{}, errCut
			}
			return do()
		}
		l := mustLock(t, c, "k")
		if len(pauses) > 700 {
			t.Errorf("%d tries in five minutes: that is no back-off", len(pauses))
		}
		mustRelease(t, l)
	})
}

func TestReleaseWhoseReplyWasLostIsARelease(t *testing.T) {
	// The Leave was applied, its reply lost; the second one finds nothing. That is no
	// loss: nobody but this call can have removed the claim before its lease was over.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		n := 0
		b.leave = func(ctx context.Context, k driver.Ticket, e driver.Exit, do func() error) error {
			err := do()
			if n++; n == 1 {
				return errCut
			}
			return err
		}
		mustRelease(t, mustLock(t, c, "k"))
	})
}

// TestLateEnterOfAWaiterIsKeptOut: an Enter would start a lease of hours if it were granted. It
// arrives long after the waiter has left, and is kept out as long as that.
func TestLateEnterOfAWaiterIsKeptOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := mustLock(t, plain(t, s), "k")
		b, late := newTap(s), make(chan error)
		c := testclient.New(t, b, &fencelock.Options{TTL: 30 * time.Second})
		b.enter = func(_ context.Context, _ driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if len(b.entered()) > 1 {
				return do()
			}
			go func() {
				time.Sleep(time.Hour)
				_, err := do()
				late <- err
			}()
			return driver.Ticket{}, errCut
		}
		_, err := c.Lock(context.Background(), "k", fencelock.NoRenewal(), fencelock.TTL(6*time.Hour), fencelock.Wait(5*time.Second))
		if !errors.Is(err, fencelock.ErrNotAcquired) {
			t.Fatalf("Lock answered %v; want ErrNotAcquired", err)
		}
		mustRelease(t, holder)
		if err := <-late; !driver.Gone(err) {
			t.Errorf("the late Enter answered %v; want GoneError", err)
		}
	})
}
