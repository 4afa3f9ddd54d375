package steps

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// patience is how long a step may take on a busy machine.
const patience = time.Minute

// Soon returns a context that ends with the test, or when no step may take longer.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Seeds are n seeds for drivertest.Model, the same each time: what they find stays found.
func Seeds(n int) []uint64 {
	fixed := make([]uint64, n)
	for i := range fixed {
		fixed[i] = uint64(i)
	}
	return fixed
}

// Must ends the test unless err is nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// OK reports err unless it is nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Well reports err, and what failed, unless it is nil.
func Well(t testing.TB, what any, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%v: %v", what, err)
	}
}

// Is holds err to matching want.
func Is(t testing.TB, what any, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v: got %v; want %v", what, err, want)
	}
}

// Same holds got to want.
func Same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v; want %+v", what, got, want)
	}
}

// ErrOf returns the error of a call whose other result is ignored.
func ErrOf[T any](_ T, err error) error { return err }

// Enter enters with c.
func Enter(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(Soon(t), c)
	if err != nil {
		t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	return ticket
}

// Hold enters with c, which must be granted at once.
func Hold(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := Enter(t, b, c)
	if !ticket.Granted {
		t.Fatalf("the claim on %q waits, %d ahead; want it granted", c.Key, ticket.Ahead)
	}
	return ticket
}

// Wait enters with c, which must wait.
func Wait(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := Enter(t, b, c)
	if ticket.Granted {
		t.Fatalf("the claim on %q is granted; want it to wait", c.Key)
	}
	return ticket
}

// Refused enters with c, which does not wait and must be refused.
func Refused(t testing.TB, b driver.Backend, c driver.Claim) {
	t.Helper()
	if _, err := b.Enter(Soon(t), NoWait(c)); err == nil {
		t.Fatal("two hold one lock")
	}
}

// InLine holds the line of key to n claims.
func InLine(t testing.TB, what string, b driver.Backend, key string, n int) {
	t.Helper()
	if l, err := b.Line(Soon(t), key); err != nil || len(l.Claims) != n {
		t.Errorf("%s: the line of %q has the claims %+v, error %v; want %d", what, key, l.Claims, err, n)
	}
}

// Leave leaves with ticket, at most one Exit given.
func Leave(t testing.TB, b driver.Backend, ticket driver.Ticket, e ...driver.Exit) {
	t.Helper()
	if err := b.Leave(Soon(t), ticket, append(e, driver.Exit{})[0]); err != nil {
		t.Fatalf("Leave on %q: %v", ticket.Key, err)
	}
}

// Renew returns the result of renewing ticket alone.
func Renew(t testing.TB, b driver.Backend, ticket driver.Ticket) error {
	t.Helper()
	return b.Renew(Soon(t), []driver.Ticket{ticket})[0]
}

// Granted waits until ticket is granted. As the core does, it goes on after an error that may pass.
func Granted(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	ticket, err := await(Soon(t), b, ticket)
	if err != nil {
		t.Fatalf("Await on %q: %v", ticket.Key, err)
	}
	return ticket
}

func await(ctx context.Context, b driver.Backend, ticket driver.Ticket) (driver.Ticket, error) {
	for !ticket.Granted {
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		now, err := b.Await(call, ticket)
		cancel()
		switch {
		case driver.Gone(err), errors.Is(err, driver.ErrClosed):
			return ticket, err
		case ctx.Err() != nil:
			return ticket, errors.Join(err, ctx.Err())
		case err == nil:
			ticket = now
		}
	}
	return ticket, nil
}

// Await is Granted on a goroutine: its channel gets the ticket, or is closed after an error.
func Await(t testing.TB, b driver.Backend, ticket driver.Ticket) <-chan driver.Ticket {
	done := make(chan driver.Ticket, 1)
	go func() {
		defer close(done)
		now, err := await(context.Background(), b, ticket)
		if err != nil {
			t.Errorf("Await: %v", err)
			return
		}
		done <- now
	}()
	return done
}

// Within returns what comes of Await, which may take d.
func Within(t testing.TB, d time.Duration, done <-chan driver.Ticket) driver.Ticket {
	t.Helper()
	select {
	case ticket, ok := <-done:
		if !ok {
			t.FailNow()
		}
		return ticket
	case <-time.After(d):
		t.Fatalf("the next in line is not granted after %v", d)
	}
	return driver.Ticket{}
}

// Detach detaches ticket.
func Detach(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	Must(t, b.(driver.Detacher).Detach(Soon(t), ticket))
	ticket.Named = true
	return ticket
}

// Adopt adopts ticket for the claim by.
func Adopt(t testing.TB, b driver.Backend, ticket driver.Ticket, by driver.Claim) driver.Ticket {
	t.Helper()
	got, err := b.(driver.Detacher).Adopt(Soon(t), ticket, by)
	if err != nil || !got.Granted || got.Token != ticket.Token {
		t.Fatalf("Adopt of %+v: %+v, %v", ticket, got, err)
	}
	return got
}

// Eventually waits until what is said holds. It waits for less than the shortest lease of a claim that tests do
// not end, which is a minute: the end of a lease must not pass for what is waited for.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	const most = 20 * time.Second
	for began := time.Now(); !holds(); <-tick.C {
		if time.Since(began) > most {
			t.Fatalf("it did not come to pass within %v: %s", most, what)
		}
	}
}
