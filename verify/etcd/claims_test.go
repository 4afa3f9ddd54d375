package etcd_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// lease is short for a test, and the shortest that the server grants.
const lease = 2 * time.Second

// lag is how much later than its lease a claim may end: the server looks twice a
// second, and the removal is a step of the cluster.
const lag = 2 * time.Second

// newPrefix is one that nobody else uses.
func newPrefix() string { return rand.Text() + "/" }

// claim is an exclusive claim. No quarter of its lease passes in a test: on an older lease an Enter
// costs a request more.
func claim(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: "test", Note: "a note",
		Capacity: driver.RW, Weight: driver.RW, TTL: 10 * time.Minute, Span: 1,
	}
}

func reader(key string) driver.Claim {
	c := claim(key)
	c.Weight = 1
	return c
}

func permits(key string, n, size int64) driver.Claim {
	c := claim(key)
	c.Weight, c.Capacity = n, size
	return c
}

func ttl(c driver.Claim, d time.Duration) driver.Claim {
	c.TTL = d
	return c
}

func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// another is a claim like c.
func another(c driver.Claim) driver.Claim {
	c.ID = rand.Text()
	return c
}

// exclusive are claims that exclude one another. kinds are claims of all kinds.
func exclusive() map[string]driver.Claim {
	return map[string]driver.Claim{"writer": claim("k"), "semaphore": permits("k", 1, 1)}
}

func kinds() map[string]driver.Claim {
	return map[string]driver.Claim{"writer": claim("k"), "reader": reader("k"), "semaphore": permits("k", 1, 1)}
}

// soon ends with the test, or after 15 seconds.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok reports err unless it is nil.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[T any](_ T, err error) error { return err }

// enter must succeed.
func enter(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(soon(t), c)
	if err != nil {
		t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	return ticket
}

// hold must be granted at once.
func hold(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if !ticket.Granted {
		t.Fatalf("Enter on %q was not granted; want a grant", c.Key)
	}
	return ticket
}

// wait must stand in line.
func wait(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if ticket.Granted {
		t.Fatalf("Enter on %q was granted; want it to wait", c.Key)
	}
	return ticket
}

// refused must be refused at once.
func refused(t testing.TB, b driver.Backend, c driver.Claim) {
	t.Helper()
	if _, err := b.Enter(soon(t), noWait(c)); err == nil {
		t.Fatal("two hold one lock")
	}
}

func leave(t testing.TB, b driver.Backend, ticket driver.Ticket, e ...driver.Exit) {
	t.Helper()
	if err := b.Leave(soon(t), ticket, append(e, driver.Exit{})[0]); err != nil {
		t.Fatalf("Leave on %q: %v", ticket.Key, err)
	}
}

func renew(t testing.TB, b driver.Backend, ticket driver.Ticket) error {
	t.Helper()
	return b.Renew(soon(t), []driver.Ticket{ticket})[0]
}

// granted waits until ticket is granted.
func granted(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	ctx := soon(t)
	for !ticket.Granted {
		now, err := b.Await(ctx, ticket)
		if err != nil {
			t.Fatalf("Await on %q: %v", ticket.Key, err)
		}
		ticket = now
	}
	return ticket
}

// await waits on a goroutine until ticket is granted, through outages.
func await(t testing.TB, b driver.Backend, ticket driver.Ticket) <-chan driver.Ticket {
	done := make(chan driver.Ticket, 1)
	go func() {
		defer close(done)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			now, err := b.Await(ctx, ticket)
			cancel()
			switch {
			case driver.Gone(err), errors.Is(err, driver.ErrClosed):
				t.Errorf("Await: %v", err)
				return
			case err == nil && now.Granted:
				done <- now
				return
			}
		}
	}()
	return done
}

// within returns what comes of await.
func within(t testing.TB, d time.Duration, done <-chan driver.Ticket) driver.Ticket {
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

// persist repeats f, whose errors are outages, until it answers.
func persist(t testing.TB, what string, f func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		if driver.Gone(err) || errors.Is(err, driver.ErrPermanent) || time.Since(began) > 30*time.Second {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s, %v on: %v", what, time.Since(began).Round(time.Millisecond), err)
		sleep(100 * time.Millisecond)
	}
}

func persistRenew(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	persist(t, "Renew", func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{ticket})[0] })
}

func persistEnter(t testing.TB, b driver.Backend, c driver.Claim) (ticket driver.Ticket) {
	t.Helper()
	persist(t, "Enter", func(ctx context.Context) (err error) { ticket, err = b.Enter(ctx, c); return err })
	return ticket
}

// persistLeave leaves, whatever attempts that takes. An attempt whose answer did not
// come may have been the one.
func persistLeave(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	attempts := 0
	persist(t, "Leave", func(ctx context.Context) error {
		err := b.Leave(ctx, ticket, driver.Exit{})
		if attempts++; attempts > 1 && driver.Gone(err) {
			return nil
		}
		return err
	})
}

// unknown must be an error that says nothing of the claim.
func unknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || driver.Gone(err) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%s: %v; want an error that says nothing of the claim", what, err)
	}
}

// rises holds the tokens of two grants to their order.
func rises[T ~int64](t testing.TB, before, after T) {
	t.Helper()
	if after <= before {
		t.Errorf("token %v was granted after %v", after, before)
	}
}

// tookAtMost checks that start was no longer ago.
func tookAtMost(t testing.TB, start time.Time, most time.Duration) {
	t.Helper()
	if d := time.Since(start); d > most {
		t.Errorf("it took %v; want at most %v", d, most)
	}
}

// wantGone holds err to saying that the claim is gone.
func wantGone(t testing.TB, what string, err error) {
	t.Helper()
	if !driver.Gone(err) {
		t.Errorf("%s: %v; want GoneError", what, err)
	}
}

// permanent must be an error that will come again.
func permanent(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%s: %v; want ErrPermanent", what, err)
	}
}

// sleep lets the server's clock go on.
func sleep(d time.Duration) { <-time.After(d) }
