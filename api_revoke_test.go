package fencelock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
)

// revoking is a Revoke that runs beside the test.
type revoking struct {
	done   chan struct{}
	broken bool
	err    error
	took   time.Duration
}

const patience = 30 * time.Second

// revoke begins to revoke the claim of l.
func (w *world) revoke(ctx context.Context, c *fencelock.Client, l *fencelock.Lease, d time.Duration) *revoking {
	r := &revoking{done: make(chan struct{})}
	begun := time.Now()
	go func() {
		defer close(r.done)
		r.broken, r.err = c.Revoke(ctx, l.Key(), l.Token(), "deploy", d, 0)
		r.took = time.Since(begun)
	}()
	synctest.Wait()
	return r
}

// requests is how many requests are in the store.
func (w *world) requests() (n int) {
	for line, err := range w.store.Store.Lines(bg, "fencelock/") {
		ok(w.T, err)
		n += len(line.Claims)
	}
	return n
}

// ended checks how the call ended.
func (r *revoking) ended(t *testing.T, broken bool, errs ...error) {
	t.Helper()
	<-r.done
	if r.broken != broken || len(errs) == 0 && r.err != nil {
		t.Errorf("Revoke: broken %v, %v; want broken %v", r.broken, r.err, broken)
	}
	is(t, r.err, errs...)
}

// asked reports whether the holder of l has heard of a request.
func asked(l *fencelock.Lease) bool {
	select {
	case <-l.Revoked():
		return true
	default:
		return false
	}
}

func TestRevokeAsksTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		var events []fencelock.Event
		a := w.client(&fencelock.Options{OnEvent: testclient.On(fencelock.EventRevoked, func(e fencelock.Event) {
			events = append(events, e)
		})})
		b := w.client(&fencelock.Options{Owner: "ops"})
		l := w.lock(a, "k")
		revoked := l.Revoked()
		r := w.revoke(bg, b, l, patience)
		begun := time.Now()
		<-revoked
		tookAtMost(t, begun, time.Second)
		by := l.Revocation()
		if by == nil || by.Owner != "ops" || by.Note != "deploy" || !by.Since.Equal(begun) {
			t.Errorf("Revocation is %+v", by)
		}
		ok(t, l.Err())
		for line, err := range b.Lines(bg, "") {
			if err != nil || line.Key != "k" {
				t.Errorf("Lines shows %q, %v", line.Key, err)
			}
		}
		time.Sleep(5 * time.Second)
		w.release(l)
		r.ended(t, false)
		tookAtMost(t, begun, 7*time.Second)
		w.free("k")
		ok(t, a.Close())
		if len(events) != 1 || events[0].Err == nil || events[0].Err.Error() != "ops asks for it: deploy" || events[0].Key != "k" || events[0].Token != l.Token() {
			t.Errorf("events: %+v", events)
		}
	})
}

func TestRevokeBreaksWhenPatienceIsOver(t *testing.T) {
	for _, how := range []string{"the holder ignores it", "the holder does not look"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			if how == "the holder ignores it" {
				defer func(revoked <-chan struct{}) { <-revoked }(l.Revoked())
			}
			r := w.revoke(bg, w.client(nil), l, patience)
			r.ended(t, true)
			if r.took != patience {
				t.Errorf("it took %v", r.took)
			}
			w.is(context.Cause(l.Context()), fencelock.ErrBroken, fencelock.ErrLost)
			if !strings.Contains(l.Err().Error(), "deploy") {
				t.Error(l.Err())
			}
			w.free("k")
		})
	}
	runInWorld(t, "with LockDelay", func(t *testing.T, w *world) {
		l, b := w.lock(w.client(nil), "k"), w.client(nil)
		broken, err := b.Revoke(bg, "k", l.Token(), "deploy", patience, lockDelay)
		if err != nil || !broken {
			t.Errorf("Revoke: %v, %v", broken, err)
		}
		time.Sleep(lockDelay - time.Second)
		w.taken("k")
		time.Sleep(time.Second)
		w.free("k")
	})
}

func TestRevokeWhoseContextEndsTakesItsRequestBack(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(nil), "k")
		ctx, cancel := context.WithCancelCause(bg)
		r := w.revoke(ctx, w.client(nil), l, patience)
		time.Sleep(5 * time.Second)
		enough := errors.New("enough")
		cancel(enough)
		r.ended(t, false, context.Canceled, enough)
		if r.err == nil || !strings.Contains(r.err.Error(), "the holder was asked, and nothing was broken") {
			t.Errorf("it says %v", r.err)
		}
		ok(t, l.Err())
		l.Revoked()
		time.Sleep(time.Minute)
		if asked(l) {
			t.Error("the request is there still")
		}
		w.release(l)
	})
}

// The second call waits for the same end as the first, and is not refused. When the first gives
// up, the request is the second's.
func TestTwoRevokersAreOneRequest(t *testing.T) {
	for _, same := range []bool{true, false} {
		name := "of two clients"
		if same {
			name = "of one client"
		}
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			first, second := w.client(&fencelock.Options{Owner: "first"}), w.client(&fencelock.Options{Owner: "second"})
			if same {
				second = first
			}
			ctx, cancel := context.WithCancel(bg)
			r1 := w.revoke(ctx, first, l, patience)
			r2, r3 := w.revoke(bg, second, l, patience), w.revoke(bg, second, l, 2*patience)
			time.Sleep(5500 * time.Millisecond)
			cancel()
			r1.ended(t, false, context.Canceled)
			time.Sleep(time.Second)
			<-l.Revoked()
			if by := l.Revocation(); !same && by.Owner != "second" {
				t.Errorf("asked by %+v", by)
			}
			w.release(l)
			r2.ended(t, false)
			r3.ended(t, false)
		})
	}
	runInWorld(t, "the shorter patience counts", func(t *testing.T, w *world) {
		l := w.lock(w.client(nil), "k")
		b := w.client(nil)
		r1, r2 := w.revoke(bg, b, l, 2*patience), w.revoke(bg, b, l, patience)
		r2.ended(t, true)
		r1.ended(t, false)
		w.is(l.Err(), fencelock.ErrBroken)
	})
}

func TestRequestOfADeadRevokerEndsWithItsTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(nil), "k")
		store := &probe{Store: w.store.Store, info: w.store.info}
		dead := testclient.New(t, store, &fencelock.Options{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(bg)
		r := w.revoke(ctx, dead, l, time.Hour)
		store.meddle(down, nil)
		time.Sleep(9 * time.Second)
		if n := w.requests(); n != 1 {
			t.Errorf("%d requests before the TTL", n)
		}
		time.Sleep(time.Second)
		if n := w.requests(); n != 0 {
			t.Errorf("%d requests after the TTL", n)
		}
		l.Revoked()
		time.Sleep(time.Minute)
		if asked(l) {
			t.Error("the request has come back")
		}
		cancel()
		<-r.done
		ok(t, dead.Close())
		w.release(l)
	})
}

func TestRevokeRidesOutAnOutage(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			revoked := l.Revoked()
			r := w.revoke(bg, w.client(&fencelock.Options{TTL: 6 * time.Second}), l, time.Minute)
			w.store.meddle(fault, nil)
			time.Sleep(15 * time.Second) // the request ends meanwhile
			w.store.heal()
			<-revoked
			w.release(l)
			r.ended(t, false)

			l = w.lock(w.client(nil), "k")
			r = w.revoke(bg, w.client(nil), l, time.Minute)
			w.store.meddle(fault, nil)
			r.ended(t, false, fencelock.ErrUnavailable)
			w.store.heal()

			l = w.lock(w.client(nil), "k")
			w.store.meddle(only(fault, "enter"), nil)
			r = w.revoke(bg, w.client(nil), l, patience)
			r.ended(t, false, fencelock.ErrUnavailable)
			ok(t, l.Err())
			w.store.heal()
			w.release(l)
		})
	}
}

func TestRevokeOfWhatNobodyHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		begun := time.Now()
		wait := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
		line, err := a.Line(bg, "k")
		must(t, err)
		broken, err := a.Revoke(bg, "k", line.Claims[1].Token, "not you", patience, 0)
		if err != nil || !broken {
			t.Errorf("of a claim that waits: %v, %v", broken, err)
		}
		_, err = wait.wait()
		w.is(err, fencelock.ErrBroken)
		took(t, begun, 0)

		for _, token := range []fence.Token{1, l.Token() + 64} {
			_, err = a.Revoke(bg, "k", token, "", patience, 0)
			w.is(err, fencelock.ErrNoClaim)
			if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("token %v: %v", token, err)
			}
		}
		w.release(l)

		m := w.lock(a, "m", fencelock.MinHold(time.Hour))
		r := w.revoke(bg, b, m, patience)
		w.release(m)
		r.ended(t, false)
		begun = time.Now()
		broken, err = b.Revoke(bg, "m", m.Token(), "", patience, 0)
		if err != nil || broken {
			t.Errorf("of a claim whose holder has left: %v, %v", broken, err)
		}
		w.taken("m")
		took(t, begun, 0)
	})
}

func TestRevokeThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		w.store.taken()
		for _, bad := range []func() error{
			func() error { return errOf(c.Revoke(bg, "", l.Token(), "", patience, 0)) },
			func() error { return errOf(c.Revoke(bg, "k", 0, "", patience, 0)) },
			func() error { return errOf(c.Revoke(bg, "k", l.Token(), "", 0, 0)) },
			func() error { return errOf(c.Revoke(bg, "k", l.Token(), "\x00", patience, 0)) },
			func() error { return errOf(c.Revoke(bg, "k", l.Token(), strings.Repeat("x", 1025), patience, 0)) },
			func() error {
				return errOf(c.Revoke(bg, "k", l.Token(), "", patience, 24*365*time.Hour*100))
			},
			func() error { return errOf(c.Lock(bg, "fencelock/revoke/0123")) },
			func() error { return errOf(c.Line(bg, "fencelock/revoke/0123")) },
			func() error { return c.Break(bg, "fencelock/revoke/0123", 1, "", 0) },
		} {
			w.is(bad(), fencelock.ErrInvalid)
		}
		w.steps()
		w.release(l)
		ok(t, c.Close())
		w.is(errOf(c.Revoke(bg, "k", l.Token(), "", patience, 0)), fencelock.ErrClosed)
	})
}

// Close and Shutdown end a call at once, and the looking of a lease with it.
func TestRevokeEndsWithItsClient(t *testing.T) {
	for _, how := range []string{"Close", "Shutdown"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			l := w.lock(a, "k")
			r := w.revoke(bg, b, l, patience)
			begun := time.Now()
			if how == "Close" {
				ok(t, b.Close())
			} else {
				ok(t, b.Shutdown(bg))
			}
			r.ended(t, false, fencelock.ErrClosed)
			l.Revoked()
			ok(t, a.Close())
			took(t, begun, 0)
			l.Revoked()
		})
	}
	runInWorld(t, "a holder that drains is asked", func(t *testing.T, w *world) {
		a := w.client(nil)
		l := w.lock(a, "k")
		w.store.meddle(func(ctx context.Context, _ string) error { return ctx.Err() }, nil)
		revoked := l.Revoked()
		synctest.Wait() // for the first look
		r := w.revoke(bg, w.client(nil), l, patience)
		go func() {
			<-revoked
			w.release(l)
		}()
		ok(t, a.Shutdown(bg))
		r.ended(t, false)
	})
}
