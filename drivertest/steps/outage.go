package steps

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Persist repeats f until it succeeds: an error that may pass is an outage.
func Persist(t testing.TB, what string, f func(ctx context.Context) error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		if says(err) || time.Since(began) > patience {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s, %v on: %v", what, time.Since(began).Round(time.Millisecond), err)
	}
}

// PersistRenew renews ticket, whatever attempts that takes.
func PersistRenew(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	Persist(t, "Renew", func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{ticket})[0] })
}

// PersistEnter enters with c, whatever attempts that takes.
func PersistEnter(t testing.TB, b driver.Backend, c driver.Claim) (ticket driver.Ticket) {
	t.Helper()
	Persist(t, "Enter", func(ctx context.Context) (err error) { ticket, err = b.Enter(ctx, c); return err })
	return ticket
}

// PersistLeave leaves with ticket, at most one Exit given, whatever attempts that takes. An attempt
// whose answer did not come may have been the one.
func PersistLeave(t testing.TB, b driver.Backend, ticket driver.Ticket, e ...driver.Exit) {
	t.Helper()
	attempts := 0
	Persist(t, "Leave", func(ctx context.Context) error {
		err := b.Leave(ctx, ticket, append(e, driver.Exit{})[0])
		if attempts++; attempts > 1 && driver.Gone(err) {
			return nil
		}
		return err
	})
}

// says reports whether err says something of the claim that no other attempt changes.
func says(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrPermanent)
}

// Unknown holds err to an error that says nothing of the claim.
func Unknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || says(err) {
		t.Errorf("%s: %v; want an error that says nothing of the claim", what, err)
	}
}

// Gone holds err to saying that the claim is gone.
func Gone(t testing.TB, what string, err error) {
	t.Helper()
	if !driver.Gone(err) {
		t.Errorf("%s: %v; want GoneError", what, err)
	}
}

// Permanent holds err to driver.ErrPermanent.
func Permanent(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%s: %v; want ErrPermanent", what, err)
	}
}

// Rises holds the tokens of two grants to their order.
func Rises[T ~int64](t testing.TB, before, after T) {
	t.Helper()
	if after <= before {
		t.Errorf("token %v was granted after %v", after, before)
	}
}

// TookAtMost reports a start that was longer ago than most: at least ten times what must happen.
func TookAtMost(t testing.TB, start time.Time, most time.Duration) {
	t.Helper()
	if d := time.Since(start); d > most {
		t.Errorf("it took %v; want at most %v", d, most)
	}
}
