package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// queued returns a holder of a lock, and a process that waits for it and is subscribed, to
// its own channel or to another.
func queued(t *testing.T, channel ...string) (holder, waiter *Backend, held, k driver.Ticket) {
	t.Helper()
	s := newServer(t)
	holder, waiter = connect(t, s, nil), connect(t, s, nil)
	for _, c := range channel {
		waiter.process = c
	}
	held = hold(t, holder, mutex("key"))
	k = wait_(t, waiter, mutex("key"))
	subscribed(t, waiter)
	return holder, waiter, held, k
}

// Pushes may be lost: what stands behind them is a reading about every second.
func TestLostPushIsMadeUpForByTheFallback(t *testing.T) {
	holder, waiter, held, k := queued(t, "nobody")
	if now, err := waiter.Await(t.Context(), k); err != nil || now.Granted {
		t.Fatalf("Await: %+v, %v", now, err)
	}
	leave(t, holder, held)
	granted(t, waiter, k)
	leave(t, waiter, k)
}

// A message that was sent while the subscription was down is not waited for: the
// standing is read as soon as it is up again.
func TestGrantDuringAnInterruptionIsSeenWhenItEnds(t *testing.T) {
	holder, waiter, held, k := queued(t, "nobody")
	if now, err := waiter.Await(t.Context(), k); err != nil || now.Granted {
		t.Fatalf("Await: %+v, %v", now, err)
	}
	onlyPushed(waiter)
	waiter.subscriber.setEpoch(0)
	got := steps.Await(t, waiter, k)
	leave(t, holder, held)
	waiter.subscriber.confirmed()
	leave(t, waiter, steps.Within(t, time.Minute, got))
}

// A subscription that a server ends, or whose connection is dead without a sign, is made again.
func TestSilentSubscriptionIsFoundOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := newProxy(t, s)
	waiter, holder := onlyPushed(closing(t, New(p.client(), nil))), connect(t, s, nil)
	waiter.subscriber.silence = 2 * time.Second
	pings := 0
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if strings.EqualFold(r.Args()[0], "ping") {
			if pings++; pings == 2 {
				return faultproxy.DiscardAnswer
			}
		}
		return faultproxy.Pass
	})
	held := hold(t, holder, mutex("key"))
	k := wait_(t, waiter, mutex("key"))
	again := func(how string, before uint64) {
		eventually(t, "a subscription that "+how+" is made again", func() bool {
			return waiter.subscriber.epoch.Load() > before
		})
	}
	again("is silent", 1)
	p.Handle(nil)
	if pings < 2 {
		t.Errorf("the subscription was replaced after %d questions, the first of which was answered", pings)
	}
	before := waiter.subscriber.epoch.Load()
	ask(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
	again("is killed", before)
	leave(t, holder, held)
	granted(t, waiter, k)
	leave(t, waiter, k)
}

// A linger that is shorter than the lease moves the end, and a waiter that is broken waits no more.
func TestWaiterIsToldWhatEndsItsWait(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(b *Backend, held, k driver.Ticket) error
		want error
	}{
		"a short linger": {end: func(b *Backend, held, _ driver.Ticket) error {
			return b.Leave(t.Context(), held, driver.Exit{Linger: minTTL})
		}},
		"a break": {func(b *Backend, _, k driver.Ticket) error {
			return b.Break(t.Context(), "key", k.Token, driver.Break{Reason: "enough"})
		}, driver.GoneError{Broken: true, Reason: "enough"}},
	} {
		holder, waiter, held, k := queued(t)
		onlyPushed(waiter)
		must(t, steps.ErrOf(waiter.read(t.Context(), k)))
		got := make(chan error)
		go func() {
			var err error
			for err == nil && !k.Granted {
				k, err = waiter.Await(steps.Soon(t), k)
			}
			got <- err
		}()
		must(t, tt.end(holder, held, k))
		steps.Is(t, name, <-got, tt.want)
		if tt.want != nil {
			leave(t, holder, held)
		} else {
			leave(t, waiter, k)
		}
	}
}

// The push may be faster than the answer to the very Enter that it grants.
func TestPushThatOvertakesTheAnswerIsHeard(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	holder, waiter := connect(t, s, nil), onlyPushed(patient(t, p.Addr(), nil))
	first, second := hold(t, holder, mutex("first")), hold(t, holder, mutex("second"))
	other := wait_(t, waiter, mutex("second"))
	subscribed(t, waiter)
	must(t, steps.ErrOf(waiter.read(t.Context(), other)))
	p.onScript(enterScript, func(int) faultproxy.Action { return faultproxy.HoldAnswer })
	c := mutex("first")
	got := make(chan driver.Ticket)
	go func() {
		k, err := waiter.Enter(context.Background(), c)
		if err != nil || k.Granted {
			t.Errorf("Enter answered %+v, %v; want a place in line", k, err)
		}
		got <- k
	}()
	eventually(t, "the claim is in line", func() bool { return len(line(t, holder, "first").Claims) == 2 })
	leave(t, holder, first)
	leave(t, holder, second)
	granted(t, waiter, other) // and so the message before this one has come too
	p.Resume()
	k := <-got
	granted(t, waiter, k)
	leave(t, waiter, k)
	leave(t, waiter, other)
}

// A grant that was pushed before anybody waited for it is not news: the claim may
// have been broken since.
func TestGrantFromBeforeTheCallIsReadAgain(t *testing.T) {
	_, b, _ := served(t)
	hold(t, b, mutex("key"))
	k := wait_(t, b, mutex("key"))
	subscribed(t, b)
	must(t, steps.ErrOf(b.read(t.Context(), k)))
	b.subscriber.handle("g0:" + prefixed(k.ID)) // late, from a line that was flushed since
	if now, err := b.Await(t.Context(), k); err != nil || now.Granted {
		t.Errorf("Await answered granted %v, %v", now.Granted, err)
	}
}
