package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
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
	if d := granted(t, waiter, k); d > 2*fallback {
		t.Errorf("the waiter learned of its grant after %v", d)
	}
	leave(t, waiter, k)
}

func TestBrokenSubscriptionIsMadeAgainAndTheLineReadAgain(t *testing.T) {
	s := newServer(t)
	holder, waiter := connect(t, s, nil), connect(t, s, nil)
	for round := range 5 {
		held := hold(t, holder, mutex("key"))
		k := wait_(t, waiter, mutex("key"))
		subscribed(t, waiter)
		ask(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
		leave(t, holder, held)
		if d := granted(t, waiter, k); d > 2*fallback {
			t.Errorf("round %d: the waiter learned of its grant after %v", round, d)
		}
		leave(t, waiter, k)
	}
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
	got := make(chan time.Duration)
	go func() { got <- granted(t, waiter, k) }()
	leave(t, holder, held)
	waiter.subscriber.confirmed()
	<-got
	leave(t, waiter, k)
}

func TestSilentSubscriptionIsFoundOut(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	waiter, holder := closing(t, New(p.client(), nil)), connect(t, s, nil)
	waiter.subscriber.silence = 100 * time.Millisecond
	pings := 0
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if strings.EqualFold(r.Args()[0], "ping") {
			if pings++; pings == 10 {
				return faultproxy.DiscardAnswer
			}
		}
		return faultproxy.Pass
	})
	held := hold(t, holder, mutex("key"))
	k := wait_(t, waiter, mutex("key"))
	subscribed(t, waiter)
	first := waiter.subscriber.epoch.Load()
	eventually(t, "the dead subscription is replaced", func() bool {
		e := waiter.subscriber.epoch.Load()
		return e != 0 && e != first
	})
	p.Handle(nil)
	if pings < 10 {
		t.Errorf("the subscription was replaced after %d questions, all of which but the tenth were answered", pings)
	}
	leave(t, holder, held)
	granted(t, waiter, k)
	leave(t, waiter, k)
}

func TestPushForAClaimThatHasLeftIsNotHeard(t *testing.T) {
	holder, waiter, held, k := queued(t)
	leave(t, waiter, k)
	waiter.subscriber.handle("g0:" + prefixed(k.ID))
	if now, err := waiter.Await(t.Context(), k); !driver.Gone(err) {
		t.Errorf("Await of a claim that has left answered %+v, %v", now, err)
	}
	leave(t, holder, held)
	if n := len(waiter.waiters.byID); n != 0 {
		t.Errorf("%d claims are still waited for", n)
	}
}

// A linger that is shorter than the lease moves the end: the first waiter is told.
func TestShortLingerIsNoticed(t *testing.T) {
	const linger = 150 * time.Millisecond
	for how, ends := range map[string]func(b *Backend, held driver.Ticket) error{
		"Leave": func(b *Backend, held driver.Ticket) error {
			return b.Leave(t.Context(), held, driver.Exit{Linger: linger})
		},
		"Break": func(b *Backend, held driver.Ticket) error {
			return b.Break(t.Context(), held.Key, held.Token, driver.Break{Reason: "it hangs", Delay: linger})
		},
	} {
		holder, waiter, held, k := queued(t)
		onlyPushed(waiter)
		must(t, errOf(waiter.read(t.Context(), k)))
		got := make(chan time.Duration)
		go func() { got <- granted(t, waiter, k) }()
		must(t, ends(holder, held))
		if d := <-got; t.Failed() {
			t.Fatalf("%s: after %v the waiter was not granted, the holder lingered for %v", how, d, linger)
		}
		leave(t, waiter, k)
	}
}

func TestBrokenWaiterLearnsAtOnce(t *testing.T) {
	holder, waiter, held, k := queued(t)
	onlyPushed(waiter)
	must(t, errOf(waiter.read(t.Context(), k)))
	got := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), waiter.fallback/2)
	defer cancel()
	go func() {
		_, err := waiter.Await(ctx, k)
		got <- err
	}()
	must(t, holder.Break(t.Context(), "key", k.Token, driver.Break{Reason: "enough"}))
	if err := <-got; err == nil || err.Error() != "the claim was broken: enough" {
		t.Errorf("Await answered %v", err)
	}
	leave(t, holder, held)
}

// The push may be faster than the answer to the very Enter that it grants.
func TestPushThatOvertakesTheAnswerIsHeard(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	holder, waiter := connect(t, s, nil), onlyPushed(closing(t, New(p.client(), nil)))
	first, second := hold(t, holder, mutex("first")), hold(t, holder, mutex("second"))
	other := wait_(t, waiter, mutex("second"))
	subscribed(t, waiter)
	must(t, errOf(waiter.read(t.Context(), other)))
	waiter.transport.queueOf(waiter.rdb).fast.Store(false) // else it is sent again in a tenth of a second
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
	must(t, errOf(b.read(t.Context(), k)))
	b.subscriber.handle("g0:" + prefixed(k.ID)) // late, from a line that was flushed since
	if now, err := b.Await(t.Context(), k); err != nil || now.Granted {
		t.Errorf("Await answered granted %v, %v", now.Granted, err)
	}
}
