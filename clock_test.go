package fencelock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/memlock"
)

// sleepFor lets c believe that the machine has slept for d: CLOCK_BOOTTIME went on,
// Go's clock and all timers stood still.
func sleepFor(c *Client, d time.Duration) {
	c.clock.Skip(d)
}

// slept runs f in a bubble with a lock that is held, where the platform says how long the
// machine slept. Elsewhere nothing is promised.
func slept(t *testing.T, ttl time.Duration, f func(t *testing.T, b *stub, c *Client, l *Lease)) {
	if _, ok := clock.Asleep(); !ok {
		t.Log("this platform does not say how long it slept; nothing is promised here")
		return
	}
	synctest.Test(t, func(t *testing.T) {
		b := &stub{Backend: memlock.New()}
		c, _ := New(b, &Options{TTL: ttl})
		defer c.Close()
		l, err := c.Lock(context.Background(), "k")
		steps.Must(t, err)
		f(t, b, c, l)
	})
}

//verify:fault Clocks | the machine sleeps
func TestClockGoesOnWhileTheMachineSleeps(t *testing.T) {
	slept(t, 10*time.Second, func(t *testing.T, _ *stub, c *Client, l *Lease) {
		sleepFor(c, time.Hour)
		steps.Is(t, "Err after an hour of sleep", l.Err(), ErrExpired)
		steps.Is(t, "the context", l.Context().Err(), context.Canceled)
	})
}

//verify:fault Clocks | the machine sleeps
func TestContextEndsSoonAfterTheMachineWokeUp(t *testing.T) {
	slept(t, time.Hour, func(t *testing.T, _ *stub, c *Client, l *Lease) {
		sleepFor(c, 2*time.Hour)
		woke := time.Now()
		<-l.Context().Done()
		if got := time.Since(woke); got > time.Second {
			t.Errorf("the context ended %v after the machine woke up", got)
		}
	})
}

// stub answers with its functions where they are set.
type stub struct {
	driver.Backend
	renew func([]driver.Ticket) []error
	await func(context.Context, driver.Ticket) (driver.Ticket, error)
}

func (s *stub) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if s.renew != nil {
		return s.renew(ts)
	}
	return s.Backend.Renew(ctx, ts)
}

func (s *stub) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if s.await != nil {
		return s.await(ctx, t)
	}
	return s.Backend.Await(ctx, t)
}

// The machine falls asleep while a renewal is on its way, and wakes up after the lease.
// No timer has fired when the answer, which is good, is read.
//
//verify:fault Clocks | the machine sleeps
func TestRenewalAnsweredAfterASleepIsTooLate(t *testing.T) {
	slept(t, 10*time.Second, func(t *testing.T, b *stub, c *Client, l *Lease) {
		b.renew = func(ts []driver.Ticket) []error {
			sleepFor(c, time.Minute)
			return make([]error, len(ts))
		}
		steps.Is(t, "Renew", l.Renew(context.Background()), ErrLost)
		steps.Is(t, "the lease", l.Err(), ErrLost)
	})
}

// The machine falls asleep while it waits in line, and the first thing it reads when it
// wakes up is a push: granted. Its claim has long left the line.
func TestPushAfterASleepIsTooLate(t *testing.T) {
	slept(t, time.Hour, func(t *testing.T, holder *stub, _ *Client, first *Lease) {
		b := &stub{Backend: holder.Backend}
		c, _ := New(b, &Options{TTL: 10 * time.Second})
		defer c.Close()
		b.await = func(ctx context.Context, k driver.Ticket) (driver.Ticket, error) {
			b.await = nil
			sleepFor(c, time.Minute)
			k.Granted = true
			return k, nil
		}
		_, err := c.Lock(context.Background(), "k", Wait(time.Minute+5*time.Second))
		steps.Is(t, "Lock", err, ErrNotAcquired)
		first.Release(context.Background())
	})
}
