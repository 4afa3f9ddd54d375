package fencelock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
)

// Through the Client that holds, Break has taken effect when it returns; through
// another one too if the backend pushes.
func TestBreakEndsTheGrantWithItsReason(t *testing.T) {
	for _, how := range []string{"own client", "own client without push", "other client", "without a reason"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			holder, other := w.client(nil), w.client(nil)
			if how == "own client without push" {
				holder = testclient.New(t, struct{ driver.Backend }{w.store}, nil) // no optional interface
				defer holder.Close()
			}
			l := w.lock(holder, "k")
			by, reason, says := holder, "deploy of v2", "deploy of v2"
			switch how {
			case "other client":
				by = other
			case "without a reason":
				reason, says = "", "operator"
			}
			must(t, by.Break(bg, "k", l.Token(), fencelock.Break{Reason: reason}))
			if l.Context().Err() == nil {
				t.Error("the context goes on after Break has returned")
			}
			for _, err := range []error{l.Err(), context.Cause(l.Context()), l.Release(bg)} {
				w.is(err, fencelock.ErrBroken, fencelock.ErrLost)
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("it does not say %q: %v", says, err)
				}
			}
			w.free("k")
			w.steps("enter", "break")
		})
	}
}

// A claim serves many grants, each with a token of its own. Any of them will do,
// whoever holds it now.
func TestBreakMatchesAnyTokenOfTheSpan(t *testing.T) {
	for _, add := range []int64{0, 1, 2, 5} {
		inWorld(t, func(w *world) {
			// A backend that does not push: what Break ends here, it ends by itself.
			c := testclient.New(t, struct{ driver.Backend }{w.store}, &fencelock.Options{HandOff: 6})
			defer c.Close()
			l1 := w.lock(c, "k")
			k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k") })
			w.release(l1)
			l2 := w.got(k.wait())
			if l2.Token() != l1.Token()+1 {
				t.Fatalf("not handed on: %v, %v", l1, l2)
			}
			must(t, c.Break(bg, "k", l1.Token()+fence.Token(add), fencelock.Break{Reason: "deploy"}))
			w.is(l2.Err(), fencelock.ErrBroken)
			w.is(l1.Err(), fencelock.ErrReleased)
			w.free("k")
		})
	}
}

func TestBreakOfAWaitingClaimEndsTheWaiting(t *testing.T) {
	for _, how := range []string{"own client", "other client"} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			first := w.lock(a, "k")
			front := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
			behind := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
			line, err := a.Line(bg, "k")
			if err != nil || len(line.Claims) != 2 {
				t.Fatalf("%+v, %v", line, err)
			}
			by := b
			if how == "other client" {
				by = a
			}
			must(t, by.Break(bg, "k", line.Claims[1].Token, fencelock.Break{Reason: "not you"}))
			if !front.over() || behind.over() {
				t.Error("the front should hear it, the one behind should join the line")
			}
			_, err = front.wait()
			w.is(err, fencelock.ErrBroken)
			if !strings.Contains(err.Error(), "not you") {
				t.Error(err)
			}
			if first.Err() != nil {
				t.Errorf("the holder lost it: %v", first.Err())
			}
			w.release(first)
			w.release(w.got(behind.wait()))
		})
	}
}

func TestBreakWhoseReplyWasLostIsUnavailable(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		w.store.meddle(nil, only(down, "break"))
		err := c.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy"})
		w.is(err, fencelock.ErrUnavailable, errDown)
		w.store.heal()
		ctx, cancel := context.WithCancelCause(bg)
		cancel(errors.New("enough"))
		w.is(c.Break(ctx, "k", l.Token(), fencelock.Break{}), fencelock.ErrUnavailable, context.Canceled)
		<-l.Context().Done()
		w.is(l.Err(), fencelock.ErrBroken)
	})
}
