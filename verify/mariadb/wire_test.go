package mariadb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestRoundTripsAreCountedOnTheWire counts what a free lock costs, under DSNs that make
// the driver speak in different ways.
func TestRoundTripsAreCountedOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", "interpolateParams=true&parseTime=true", "clientFoundRows=true", "autocommit=0"} {
		t.Run(tail, func(t *testing.T) {
			p := newProxy(t, server(t).Addr())
			name := newDatabase(t)
			db := openDSN(t, fmt.Sprintf("root@tcp(%s)/%s?%s", p.listener.Addr(), name, tail))
			db.SetMaxOpenConns(1)
			b := backend(t, db)
			leave(t, b, hold(t, b, claim("k")))
			want := func(what string, n int) {
				t.Helper()
				var got []string
				for _, command := range p.take() {
					// One Enter in 64 looks for idle lines besides.
					if !strings.Contains(command, "v1_sweep(") {
						got = append(got, command)
					}
				}
				if len(got) != n {
					t.Errorf("%s took %d round trips; want %d: %q", what, len(got), n, got)
				}
			}
			p.take()
			ticket := hold(t, b, claim("k"))
			want("Enter of a free lock", 1)
			if err := b.Renew(soon(t), []driver.Ticket{ticket}); err[0] != nil {
				t.Error(err)
			}
			want("Renew", 1)
			var busy *driver.BusyError
			if _, err := b.Enter(soon(t), noWait(claim("k"))); !errors.As(err, &busy) {
				t.Errorf("a try answered %v", err)
			}
			want("Enter of a held lock that is refused", 1)
			waiting := wait(t, b, claim("k"))
			want("Enter of a held lock", 1)
			leave(t, b, waiting)
			want("Leave of a waiting claim", 1)
			leave(t, b, ticket)
			want("Leave of a lock that nobody waits for", 1)
			leave(t, b, hold(t, b, claim("a new key")))
			want("Enter and Leave of a new key", 2)
			var many []driver.Ticket
			for i := range 150 {
				many = append(many, hold(t, b, claim(fmt.Sprint("many", i))))
			}
			p.take()
			for _, err := range b.Renew(soon(t), many) {
				if err != nil {
					t.Error(err)
				}
			}
			want("Renew of 150 leases", 2)
			for _, ticket := range many {
				leave(t, b, ticket)
			}
		})
	}
}

// TestCutConnectionsLeaveNoGhosts cuts the connection before the server has seen a step,
// and after it has done it and before anybody knows, and does then what the core does.
func TestCutConnectionsLeaveNoGhosts(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server(t).Addr())
	name := newDatabase(t)
	b := backend(t, openDSN(t, fmt.Sprintf("root@tcp(%s)/%s", p.listener.Addr(), name)))
	direct := backend(t, openDSN(t, dsnOf(server(t), name, "")))
	leave(t, b, hold(t, b, claim("warm")))
	// once cuts the first step of that name.
	once := func(f fate, step string) {
		cut := false
		p.set(func(command string) fate {
			if !cut && strings.Contains(command, "v1_"+step+"(") {
				cut = true
				return f
			}
			return forward
		})
	}
	unknown := func(what string, err error) {
		t.Helper()
		var permanent *driver.PermanentError
		if err == nil || driver.Gone(err) || errors.As(err, &permanent) {
			t.Errorf("%s over a connection that was cut answered %v; want an error that leaves it open", what, err)
		}
	}
	for _, f := range []fate{dropIt, dropAnswer} {
		t.Run(map[fate]string{dropIt: "BeforeTheServerSawIt", dropAnswer: "BeforeTheAnswerArrived"}[f], func(t *testing.T) {
			// Enter, and its repeat: one claim.
			c := claim("k")
			once(f, "enter")
			_, err := b.Enter(soon(t), c)
			unknown("Enter", err)
			ticket := hold(t, b, c)
			if l, err := direct.Line(soon(t), "k"); err != nil || len(l.Claims) != 1 {
				t.Errorf("%d claims are in line after Enter and its repeat, %v; want 1", len(l.Claims), err)
			}
			// Renew, and its repeat.
			once(f, "renew")
			unknown("Renew", b.Renew(soon(t), []driver.Ticket{ticket})[0])
			if err := b.Renew(soon(t), []driver.Ticket{ticket})[0]; err != nil {
				t.Errorf("Renew again: %v", err)
			}
			// Leave, and its repeat; a waiter learns of it in either case.
			w := wait(t, b, claim("k"))
			once(f, "leave")
			unknown("Leave", b.Leave(soon(t), ticket, driver.Exit{Mark: "done"}))
			if err := b.Leave(soon(t), ticket, driver.Exit{Mark: "done"}); err != nil {
				t.Errorf("Leave again: %v; want nil, for it wrote the mark", err)
			}
			if w = granted(t, b, w); w.Mark != "done" {
				t.Errorf("the mark is %q", w.Mark)
			}
			// An Enter that is given up.
			given := ttl(claim("k"), time.Minute)
			once(f, "enter")
			_, err = b.Enter(soon(t), given)
			unknown("Enter", err)
			if err := b.Leave(soon(t), driver.Ticket{Claim: given}, driver.Exit{}); err != nil && !driver.Gone(err) {
				t.Error(err)
			}
			if _, err := b.Enter(soon(t), given); !driver.Gone(err) {
				t.Errorf("Enter of what was given up answered %v; want ErrGone", err)
			}
			// Break, and its repeat.
			once(f, "break")
			unknown("Break", b.Break(soon(t), "k", w.Token, "cut"))
			if err := b.Break(soon(t), "k", w.Token, "cut"); err != nil && !driver.Gone(err) {
				t.Error(err)
			}
			if err := b.Leave(soon(t), w, driver.Exit{}); !driver.Gone(err) {
				t.Errorf("Leave of a broken claim answered %v; want ErrGone", err)
			}
			empty(t, direct)
		})
	}
}
