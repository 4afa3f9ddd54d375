package swaplock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// asking loses every swap, as if another client had always written first. Before runs before a message is left, and
// after runs then.
type asking struct {
	notes
	before, after func()
}

func (*asking) Swap(ctx context.Context, _ string, _ *swaplock.Change) (string, error) {
	return "", ctx.Err()
}

func (s *asking) Message(ctx context.Context, key string, m []byte) (bool, error) {
	s.before()
	added, err := s.notes.Message(ctx, key, m)
	s.after()
	return added, err
}

// arriving is asking in a store in which claims can arrive.
type arriving struct{ *asking }

func (s arriving) Read(ctx context.Context, key string, n int) (swaplock.State, error) {
	return s.toy.Read(ctx, key, n)
}

func (s arriving) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	return s.toy.Arrive(ctx, key, a)
}

func (s arriving) Withdraw(ctx context.Context, key string, a *swaplock.Arrival) (bool, error) {
	return s.toy.Withdraw(ctx, key, a)
}

// helped runs f in virtual time, in both kinds of store. All swaps of a are lost, and b does each message that a leaves.
func helped(t *testing.T, f func(t *testing.T, s *asking, a, b *swaplock.Backend)) {
	for _, arrive := range []bool{false, true} {
		t.Run(fmt.Sprint("Arrive=", arrive), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				toy := newToy()
				s := &asking{notes: notes{toy, toy, 0}, before: func() {}}
				a, b := opened(t, s), opened(t, s.notes)
				if arrive {
					a, b = opened(t, arriving{s}), opened(t, toy)
				}
				s.after = func() { settled(t, b) }
				f(t, s, a, b)
			})
		})
	}
}

func settled(t *testing.T, b *swaplock.Backend) {
	steps.OK(t, b.Settle(t.Context(), "k"))
}

func reader(id string) driver.Claim {
	c := exclusive(id, time.Minute)
	c.Weight = 1
	return c
}

// noticed gives notice of a minute.
func noticed(t *testing.T, b *swaplock.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	how := driver.Break{Reason: "enough", Notice: time.Minute}
	steps.Must(t, b.Break(t.Context(), ticket.Key, ticket.Token, how))
	return ticket
}

// call is one that a client does by a message, and what it should return.
type call struct {
	what string
	in   func(t *testing.T, b *swaplock.Backend) driver.Ticket // who is in line before
	do   func(t *testing.T, a *swaplock.Backend, ticket driver.Ticket) error
	left int // claims in line afterwards
}

func holder(t *testing.T, b *swaplock.Backend) driver.Ticket {
	t.Helper()
	return entered(t, b, reader("holder"))
}

// second has c enter behind the holder.
func second(c driver.Claim) func(t *testing.T, b *swaplock.Backend) driver.Ticket {
	return func(t *testing.T, b *swaplock.Backend) driver.Ticket {
		holder(t, b)
		ticket := entered(t, b, c)
		time.Sleep(30 * time.Second) // real time: none, its tests run in bubbles
		return ticket
	}
}

func underNotice(t *testing.T, b *swaplock.Backend) driver.Ticket {
	return noticed(t, b, second(reader("reader"))(t, b))
}

func enters(c driver.Claim) func(t *testing.T, a *swaplock.Backend, _ driver.Ticket) error {
	return func(t *testing.T, a *swaplock.Backend, _ driver.Ticket) error {
		c.After = 1 // it cannot arrive
		got, err := a.Enter(t.Context(), c)
		if err == nil && (got.Granted != (c.Weight == 1) || got.Left <= 59*time.Second) {
			t.Errorf("Enter returned %+v", got)
		}
		return err
	}
}

func leaves(t *testing.T, a *swaplock.Backend, ticket driver.Ticket) error {
	return a.Leave(t.Context(), ticket, driver.Exit{})
}

func renews(t *testing.T, a *swaplock.Backend, ticket driver.Ticket) error {
	return renewed(t, a, ticket)
}

func hearsNotice(t *testing.T, a *swaplock.Backend, ticket driver.Ticket) error {
	var gone driver.GoneError
	if err := renewed(t, a, ticket); !errors.As(err, &gone) || gone.Left <= 0 || gone.Reason != "enough" {
		return fmt.Errorf("%w; want a notice", err)
	}
	return nil
}

func detaches(t *testing.T, a *swaplock.Backend, ticket driver.Ticket) error {
	return a.Detach(t.Context(), ticket)
}

var calls = []call{
	{"Enter of a claim that waits", holder, enters(exclusive("writer", time.Minute)), 2},
	{"Enter of a claim that is granted", holder, enters(reader("reader")), 2},
	{"Enter of a claim that waits already", second(exclusive("writer", time.Minute)),
		enters(exclusive("writer", time.Minute)), 2},
	{"Enter of a claim that is granted already", second(reader("reader")), enters(reader("reader")), 2},
	{"Leave of a holder", second(reader("reader")), leaves, 1},
	{"Leave of a waiter", second(exclusive("writer", time.Minute)), leaves, 1},
	{"Leave under notice", underNotice, leaves, 1},
	{"the first Renew of a holder", second(reader("reader")), renews, 2},
	{"the first Renew of a waiter", second(exclusive("writer", time.Minute)), renews, 2},
	{"the first Renew under notice", underNotice, hearsNotice, 2},
	{"Detach", second(reader("reader")), detaches, 2},
}

// A client whose swaps are always lost leaves a message, and another client does what it says. The first one returns
// what it would have returned if it had done that itself, as soon as it reads the line again.
func TestCallThatAnotherClientDoes(t *testing.T) {
	for _, tt := range calls {
		t.Run(tt.what, func(t *testing.T) {
			helped(t, func(t *testing.T, _ *asking, a, b *swaplock.Backend) {
				ticket := tt.in(t, b)
				start := time.Now()
				steps.Well(t, "the call, which has been done", tt.do(t, a, ticket))
				steps.TookAtMost(t, start, time.Second/2)
				steps.InLine(t, tt.what, b, "k", tt.left)
			})
		})
	}
}

// The first renewals of many claims are in one batch, which ends once others have done the last of them.
func TestFirstRenewalsThatAnotherClientDoes(t *testing.T) {
	helped(t, func(t *testing.T, _ *asking, a, b *swaplock.Backend) {
		holder(t, b)
		var tickets []driver.Ticket
		for i := range 20 {
			tickets = append(tickets, entered(t, b, reader(fmt.Sprint("reader", i))))
		}
		for i, err := range a.Renew(t.Context(), tickets) {
			steps.Well(t, i, err)
		}
	})
}

// A client leaves a message by which its claim leaves under notice, and the claim is broken before another client does
// what the message says.
func TestLeaveThatIsNotDoneInTime(t *testing.T) {
	notice := func(s *asking, _ *swaplock.Backend, _ driver.Ticket) {
		after := s.after
		s.after = func() {
			time.Sleep(2 * time.Minute)
			after()
		}
	}
	atOnce := func(s *asking, b *swaplock.Backend, ticket driver.Ticket) {
		s.before = func() { _ = b.Break(context.Background(), "k", ticket.Token, driver.Break{Reason: "enough"}) }
	}
	for what, breaks := range map[string]func(*asking, *swaplock.Backend, driver.Ticket){
		"the notice is over": notice, "it is broken at once": atOnce,
	} {
		t.Run(what, func(t *testing.T) {
			helped(t, func(t *testing.T, s *asking, a, b *swaplock.Backend) {
				ticket := noticed(t, b, entered(t, b, exclusive("holder", time.Hour)))
				entered(t, b, exclusive("waiter", time.Hour))
				breaks(s, b, ticket)
				var gone driver.GoneError
				err := a.Leave(t.Context(), ticket, driver.Exit{})
				if !errors.As(err, &gone) || !gone.Broken || gone.Reason != "enough" {
					t.Errorf("the claim was broken, and Leave returned: %v", err)
				}
			})
		})
	}
}

// A client renews a claim and gives it back at once, each by a message. The renewal comes later, and finds no claim: the
// claim has left.
func TestRenewalThatComesAfterItsClaimHasLeft(t *testing.T) {
	helped(t, func(t *testing.T, s *asking, a, b *swaplock.Backend) {
		ticket := entered(t, b, reader("holder"))
		entered(t, b, reader("reader"))
		s.after = func() {
			settled(t, b)
			late := fmt.Sprintf(`{"lend":"holder","token":%d,"ttl":"1m0s"}`, ticket.Token)
			if added, err := s.notes.Message(t.Context(), "k", []byte(late)); !added || err != nil {
				t.Error(added, err)
			}
			s.after = func() {}
		}
		left(t, a, ticket)
	})
}

// Two processes have a claim by its name, and renew it first at the same moment. The one whose swap is lost has asked
// for a longer lease, and gets that.
func TestFirstRenewalAfterAShorterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &failing{toy: newToy()}
		a, b := opened(t, s), opened(t, s.toy)
		entered(t, b, exclusive("holder", time.Hour))
		waiter := entered(t, b, exclusive("waiter", time.Minute))
		longer := waiter
		longer.TTL = 3 * time.Minute
		s.before = func() error { return renewed(t, b, waiter) }
		steps.Must(t, renewed(t, a, longer))
		time.Sleep(2 * time.Minute)
		steps.InLine(t, "two minutes later", b, "k", 2)
	})
}
