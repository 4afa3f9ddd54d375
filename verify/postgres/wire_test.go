package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestRoundTrips counts them on the wire, in each of pgx's modes. Every second pgx
// asks besides whether a connection is alive; that is not counted.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol", "PgBouncer"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			to := ""
			if mode == "PgBouncer" {
				to = newPooled(t)
			} else {
				to = newURL(t, "default_query_exec_mode="+mode)
			}
			p, url := newProxy(t, to)
			db := openURL(t, url)
			db.SetMaxOpenConns(1)
			b := backend(t, db)
			ctx := soon(t)
			// The first time a statement may have to be prepared. One Enter in 256 sweeps
			// idle lines besides; after the one that does, no other will for long.
			b.Renew(ctx, []driver.Ticket{{Claim: claim("warm")}})
			leave(t, b, hold(t, b, claim("warm")))
			for p.count(func() { leave(t, b, hold(t, b, claim("warm"))) }) == 2 {
			}

			var one, w driver.Ticket
			trips := func(what string, want int, f func()) {
				t.Helper()
				if got := p.count(f); got != want {
					t.Errorf("%s took %d round trips; want %d", what, got, want)
				}
			}
			trips("Enter of a free lock", 1, func() { one = hold(t, b, claim("k")) })
			trips("Enter of a held lock", 1, func() { w = wait(t, b, claim("k")) })
			trips("Enter that does not wait", 1, func() { b.Enter(ctx, noWait(claim("k"))) })
			trips("Renew", 1, func() { b.Renew(ctx, []driver.Ticket{one}) })
			trips("Leave of a waiter", 1, func() { leave(t, b, w) })
			trips("Leave of a holder", 1, func() { leave(t, b, one) })
			var many []driver.Ticket
			trips("a hundred Enters", 100, func() {
				for i := range 100 {
					many = append(many, hold(t, b, claim(fmt.Sprint("key", i))))
				}
			})
			trips("Renew of a hundred", 1, func() {
				for _, err := range b.Renew(ctx, many) {
					if err != nil {
						t.Error(err)
					}
				}
			})
			trips("a hundred Leaves", 100, func() {
				for i := range many {
					leave(t, b, many[i])
				}
			})
			empty(t, b)
		})
	}
}

// TestAnswerLost cuts the connection of each step before it was applied, and after. The
// answer is an error that says neither yes nor no, and the step can be sent again.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, w way) {
		// Without prepared statements each step is one request, whatever connection it is on.
		p, url := newProxy(t, with(t, w.url, "", "default_query_exec_mode=exec"))
		db := openURL(t, url)
		db.SetMaxOpenConns(1)
		b := backend(t, db)
		ctx := soon(t)
		sure := func(t *testing.T, what string, err error) {
			t.Helper()
			var permanent *driver.PermanentError
			var busy *driver.BusyError
			if err == nil || errors.As(err, &permanent) || errors.As(err, &busy) || driver.Gone(err) || errors.Is(err, driver.ErrKind) {
				t.Errorf("%s whose connection was cut answered %v; want an error that leaves it open", what, err)
			}
		}
		for name, how := range map[string]cut{"BeforeItWasApplied": loseIt, "AfterItWasApplied": loseReply} {
			t.Run(name, func(t *testing.T) {
				leave(t, b, hold(t, b, claim("k"))) // a connection is there, and all is prepared
				c := claim("k")
				p.next(how)
				sure(t, "Enter", second(b.Enter(ctx, c)))
				one := hold(t, b, c)
				again := hold(t, b, c)
				if one.Token != again.Token {
					t.Errorf("a repeated Enter got token %d after %d", again.Token, one.Token)
				}
				if l, err := b.Line(ctx, "k"); err != nil || len(l.Claims) != 1 {
					t.Errorf("%d claims are in line, %v; want one", len(l.Claims), err)
				}

				p.next(how)
				sure(t, "Renew", b.Renew(ctx, []driver.Ticket{one})[0])
				if err := b.Renew(ctx, []driver.Ticket{one})[0]; err != nil {
					t.Errorf("a repeated Renew: %v", err)
				}

				p.next(how)
				sure(t, "Leave with a mark", b.Leave(ctx, one, driver.Exit{Mark: driver.Mark(name)}))
				if err := b.Leave(ctx, one, driver.Exit{Mark: driver.Mark(name)}); err != nil {
					t.Errorf("a repeated Leave with a mark: %v", err)
				}
				two := hold(t, b, claim("k"))
				if two.Mark != driver.Mark(name) {
					t.Errorf("the mark is %q; want %q", two.Mark, name)
				}

				p.next(how)
				sure(t, "Break", b.Break(ctx, "k", two.Token, "why"))
				if err := b.Break(ctx, "k", two.Token, "why"); err != nil && !driver.Gone(err) {
					t.Errorf("a repeated Break: %v", err)
				}
				var gone driver.ErrGone
				if err := b.Renew(ctx, []driver.Ticket{two})[0]; !errors.As(err, &gone) || gone.Reason != "why" {
					t.Errorf("Renew of a broken claim answered %v; want the reason", err)
				}

				// A Leave of which nothing is known keeps out an Enter that comes later.
				late := claim("k")
				p.next(how)
				sure(t, "Leave without a token", b.Leave(ctx, driver.Ticket{Claim: late}, driver.Exit{}))
				b.Leave(ctx, driver.Ticket{Claim: late}, driver.Exit{})
				if _, err := b.Enter(ctx, late); !driver.Gone(err) {
					t.Errorf("an Enter after its Leave answered %v; want ErrGone", err)
				}
				empty(t, b)
			})
		}
	})
}

// TestCancelledCallLetsGoOfItsConnection ends contexts of steps that wait for the lock on
// a line, on the only connection.
func TestCancelledCallLetsGoOfItsConnection(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	db := openURL(t, url)
	db.SetMaxOpenConns(1)
	b := backend(t, db)
	holder := hold(t, b, claim("k"))
	move(t, b, "k")
	x := begin(t, url, "SELECT * FROM fencelock_line FOR UPDATE")
	cutShort(t, map[string]func(ctx context.Context) error{
		"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim("k"))) },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, holder, driver.Exit{}) },
		"Break": func(ctx context.Context) error { return b.Break(ctx, "k", holder.Token, "") },
	})
	if err := b.Renew(soon(t), []driver.Ticket{holder})[0]; err != nil {
		t.Errorf("Renew beside steps that were given up: %v", err)
	}
	x.end()
	leaveAll(t, b, "")
}

// TestWhoWaitsAsksUntilListenIsInEffect counts what a process that waits asks the server,
// beside another one that has no Listen. A server that is busy takes long to make a
// connection, and that is when many wait.
func TestWhoWaitsAsksUntilListenIsInEffect(t *testing.T) {
	t.Parallel()
	url := newURL(t, "default_query_exec_mode=exec")
	p, toTold := newProxy(t, url)
	q, toDeaf := newProxy(t, url)
	connected := make(chan struct{})
	told := sqllock.New(openURL(t, toTold), sqllock.Postgres, &sqllock.Options{CreateTables: true,
		Listen: func(ctx context.Context, _ string, heard func()) error {
			select {
			case <-connected:
				heard()
			case <-ctx.Done():
			}
			<-ctx.Done()
			return ctx.Err()
		}})
	defer told.Close()
	deaf := backend(t, openURL(t, toDeaf))
	holder, w, v := hold(t, told, claim("k")), wait(t, told, claim("k")), wait(t, deaf, claim("k"))
	await := func(b *sqllock.Backend, w driver.Ticket) {
		ctx, cancel := context.WithTimeout(soon(t), 400*time.Millisecond)
		defer cancel()
		if _, err := b.Await(ctx, w); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await of a claim that waits answered %v", err)
		}
	}
	asked := func() (byTold, byDeaf int) {
		byDeaf = q.count(func() {
			byTold = p.count(func() {
				var both sync.WaitGroup
				both.Go(func() { await(told, w) })
				both.Go(func() { await(deaf, v) })
				both.Wait()
			})
		})
		return byTold, byDeaf
	}
	if n, m := asked(); n < m/2 {
		t.Errorf("who waits asked %d times in 400 ms before LISTEN was in effect, and %d times without Listen; want as often", n, m)
	}
	close(connected)
	if n, m := asked(); n > 6 {
		t.Errorf("who waits asked %d times in 400 ms with LISTEN in effect, and %d times without Listen; want to be told", n, m)
	}
	leave(t, told, holder)
	leave(t, told, granted(t, told, w))
	leave(t, deaf, granted(t, deaf, v))
	empty(t, told)
}

// TestNotifiesOnlyWhenSomebodyWaits listens to what a Backend is told: NOTIFY takes a lock
// on the whole database.
func TestNotifiesOnlyWhenSomebodyWaits(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	told := make(chan struct{}, 1000)
	listening := make(chan struct{})
	listen := listenOn(url)
	options := &sqllock.Options{CreateTables: true, Listen: func(ctx context.Context, channel string, heard func()) error {
		first := true
		return listen(ctx, channel, func() {
			if first {
				first = false
				close(listening)
			} else {
				told <- struct{}{}
			}
			heard()
		})
	}}
	a := sqllock.New(openURL(t, url), sqllock.Postgres, options)
	defer a.Close()
	defer a.Alarm(func(string, driver.ErrGone) {})()
	b := backend(t, openURL(t, url))
	leave(t, a, hold(t, a, claim("k")))
	<-listening
	for range 20 {
		leave(t, a, hold(t, a, claim("k")))
		leave(t, b, hold(t, b, claim("k")))
	}
	// Among waiters of one process nobody needs to be told, either.
	holder, w := hold(t, a, claim("k")), wait(t, a, claim("k"))
	leave(t, a, holder)
	leave(t, a, granted(t, a, w))
	holder, w = hold(t, b, claim("k")), wait(t, a, claim("k"))
	began := time.Now()
	leave(t, b, holder)
	select {
	case <-told:
	case <-time.After(15 * time.Second):
		t.Error("a waiter of another process was not told")
	}
	t.Logf("told after %v", time.Since(began))
	leave(t, a, granted(t, a, w))
	if n := len(told); n > 0 {
		t.Errorf("%d notifications too many", n)
	}
	empty(t, b)
}
