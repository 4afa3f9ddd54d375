package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// refusal must be a PermanentError from every call, and mention words.
func refusal(t *testing.T, b *sqllock.Backend, words ...string) {
	t.Helper()
	ctx := soon(t)
	ticket := driver.Ticket{Claim: claim("k"), Token: 1}
	calls := map[string]error{
		"Enter": second(b.Enter(ctx, claim("k"))),
		"Await": second(b.Await(ctx, ticket)),
		"Renew": b.Renew(ctx, []driver.Ticket{ticket})[0],
		"Leave": b.Leave(ctx, ticket, driver.Exit{}),
		"Break": b.Break(ctx, "k", 1, ""),
		"Line":  second(b.Line(ctx, "k")),
	}
	for _, err := range b.Lines(ctx, "") {
		calls["Lines"] = err
	}
	for name, err := range calls {
		var p *driver.PermanentError
		if !errors.As(err, &p) {
			t.Errorf("%s answered %v; want a PermanentError", name, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s answered %q; want it to say %q", name, err, word)
			}
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s tells the password: %v", name, err)
		}
	}
	if len(calls) != 7 {
		t.Error("Lines yielded no error")
	}
}

func TestWhatCannotWorkSaysSo(t *testing.T) {
	t.Parallel()
	base := newURL(t)
	open := func(t *testing.T, url string, create bool) *sqllock.Backend {
		b := sqllock.New(openURL(t, url), sqllock.Postgres, &sqllock.Options{CreateTables: create})
		t.Cleanup(func() { b.Close() })
		return b
	}
	t.Run("MissingTables", func(t *testing.T) {
		refusal(t, open(t, base, false), "missing", "CreateTables", "fencelock schema postgres")
	})
	t.Run("TablesDroppedLater", func(t *testing.T) {
		url := newURL(t)
		b := backend(t, openURL(t, url))
		hold(t, b, claim("k"))
		do(t, url, "DROP SCHEMA public CASCADE")
		do(t, url, "CREATE SCHEMA public")
		refusal(t, b, "missing", "fencelock schema postgres")
	})
	t.Run("FunctionsDropped", func(t *testing.T) {
		url := newURL(t)
		b := backend(t, openURL(t, url))
		leave(t, b, hold(t, b, claim("k")))
		do(t, url, "DROP FUNCTION fencelock_sweep")
		refusal(t, open(t, url, false), "missing", "fencelock schema postgres")
		again := open(t, url, true)
		leave(t, again, hold(t, again, claim("k")))
	})
	t.Run("Prefix", func(t *testing.T) {
		for _, prefix := range []string{"a b", "x;", `x"`, "1x", "ä", strings.Repeat("x", 33), "x'--"} {
			b := sqllock.New(openURL(t, base), sqllock.Postgres, &sqllock.Options{Prefix: prefix, CreateTables: true})
			refusal(t, b, "prefix")
			if _, err := sqllock.Schema(sqllock.Postgres, &sqllock.Options{Prefix: prefix}); err == nil {
				t.Errorf("Schema took the prefix %q", prefix)
			}
			b.Close()
		}
	})
	t.Run("OtherFormat", func(t *testing.T) {
		url := newURL(t)
		b := open(t, url, true)
		leave(t, b, hold(t, b, claim("k")))
		do(t, url, "UPDATE fencelock_meta SET value = '7' WHERE name = 'format'")
		refusal(t, open(t, url, true), "format 7", "format 1")
		do(t, url, "DELETE FROM fencelock_meta WHERE name = 'format'")
		refusal(t, open(t, url, true), "format")
	})
	t.Run("NoDatabase", func(t *testing.T) {
		refusal(t, sqllock.New(nil, sqllock.Postgres, nil), "database")
		refusal(t, open(t, with(t, base, "nobody_made_it"), true), "no such database")
	})
	t.Run("NoRight", func(t *testing.T) {
		url := newURL(t)
		do(t, url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // as it is since PostgreSQL 15
		do(t, url, "CREATE ROLE plain LOGIN PASSWORD 's3cret'")
		t.Cleanup(func() { do(t, server.URL(), "DROP ROLE plain") })
		t.Cleanup(func() { do(t, url, "DROP OWNED BY plain") })
		plain := user(t, url, "plain", "s3cret")
		refusal(t, open(t, plain, true), "right", "GRANT", "fencelock schema postgres")
		b := open(t, url, true)
		leave(t, b, hold(t, b, claim("k")))
		refusal(t, open(t, plain, true), "right", "GRANT")
		// What the schema says to do helps.
		do(t, url, "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_meta, fencelock_line, fencelock_claim, fencelock_rest TO plain")
		b = open(t, plain, false)
		holder, w := hold(t, b, claim("k")), wait(t, b, claim("k"))
		if err := b.Break(soon(t), "k", holder.Token, "why"); err != nil {
			t.Error(err)
		}
		leave(t, b, granted(t, b, w))
		for range 300 { // sweeps included
			leave(t, b, hold(t, b, claim("k")))
		}
		empty(t, b)
	})
	t.Run("ClosedDatabase", func(t *testing.T) {
		db := openURL(t, newURL(t))
		b := backend(t, db)
		leave(t, b, hold(t, b, claim("k")))
		db.Close()
		refusal(t, b, "closed")
	})
	t.Run("ListenForAnotherDialect", func(t *testing.T) {
		b := sqllock.New(openURL(t, base), sqllock.SQLite, &sqllock.Options{Listen: listenOn(base)})
		refusal(t, b, "Listen")
	})
}

// user returns a URL with another user.
func user(t testing.TB, raw, name, password string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

// TestWrongPasswordIsPermanent has a server that asks for one.
func TestWrongPasswordIsPermanent(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.Password("right"))
	b := sqllock.New(openURL(t, user(t, s.URL(), "postgres", "s3cret")), sqllock.Postgres, &sqllock.Options{CreateTables: true})
	defer b.Close()
	refusal(t, b, "password", "does not let us in")
	good := listening(t, newURLOn(t, s))
	leave(t, good, hold(t, good, claim("k")))
	front := testserver.PgBouncer(t, s)
	pooled := backend(t, openURL(t, with(t, front.URL(), "", "default_query_exec_mode=exec")))
	leave(t, pooled, hold(t, pooled, claim("k")))
	do(t, s.URL(), "DROP SCHEMA public CASCADE")
	do(t, s.URL(), "CREATE SCHEMA public")
}

// TestPoolerThatMixesUpStatements has pgx prepare statements, as it does by default, behind
// a pooler that hands one connection of the server to several clients. Newer ones tell their
// statements apart.
func TestPoolerThatMixesUpStatements(t *testing.T) {
	t.Parallel()
	direct := newURL(t)
	setup := backend(t, openURL(t, direct))
	leave(t, setup, hold(t, setup, claim("k")))
	behind := func(config ...string) (failed error) {
		front := testserver.PgBouncer(t, server, testserver.Config(append(config, "default_pool_size = 1")...))
		url := with(t, front.URL(), databaseOf(t, direct))
		for i := 0; failed == nil && i < 10; i++ {
			db := openURL(t, url)
			b := sqllock.New(db, sqllock.Postgres, nil)
			var ticket driver.Ticket
			if ticket, failed = b.Enter(soon(t), claim(fmt.Sprint("k", i))); failed == nil {
				failed = b.Leave(soon(t), ticket, driver.Exit{})
			}
			b.Close()
		}
		return failed
	}
	var mixing []string
	if testserver.PgBouncerKeepsStatements(t) {
		mixing = append(mixing, "max_prepared_statements = 0")
		if err := behind("max_prepared_statements = 100"); err != nil {
			t.Errorf("behind a pooler that keeps prepared statements: %v", err)
		}
	}
	var p *driver.PermanentError
	if err := behind(mixing...); !errors.As(err, &p) || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("prepared statements behind a pooler answered %v; want an error that says what to do", err)
	}
	leaveAll(t, setup, "")
}

// TestMissingTablesAreNotRemembered runs what Schema returns by hand, twice, and with
// another prefix.
func TestMissingTablesAreNotRemembered(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	db := openURL(t, url)
	b := sqllock.New(db, sqllock.Postgres, &sqllock.Options{Prefix: "App_"})
	defer b.Close()
	refusal(t, b, "missing")
	ddl, err := sqllock.Schema(sqllock.Postgres, &sqllock.Options{Prefix: "App_"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := db.Exec(ddl); err != nil {
			t.Fatalf("the schema cannot be run: %v", err)
		}
	}
	leave(t, b, hold(t, b, claim("k")))
	// Another set of tables in the same database is another set of locks.
	other := backend(t, db)
	mine := hold(t, b, claim("k"))
	leave(t, other, hold(t, other, claim("k")))
	leave(t, b, mine)
	empty(t, b)
	// Those of another prefix are woken, too: names are lower case where they are not quoted.
	options := &sqllock.Options{Prefix: "App_", Listen: listenOn(url)}
	one, two := sqllock.New(db, sqllock.Postgres, options), sqllock.New(db, sqllock.Postgres, options)
	defer one.Close()
	defer two.Close()
	handOvers(t, one, two)
}

// TestServerIsKilledAfterAGrant kills the server as soon as a Leave, which grants the lock
// to somebody else, or an Enter was answered: both are on the disk by then. A Leave that
// grants nobody anything need not be, but the lock is free when its lease has ended.
func TestServerIsKilledAfterAGrant(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	b := backend(t, openURL(t, newURLOn(t, s)))
	crash := func() {
		t.Helper()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		until(t, "the server answers", func() bool { return second(b.Line(soon(t), "k")) == nil })
	}
	var held driver.Ticket
	for range 3 {
		first := hold(t, b, claim("k"))
		next := wait(t, b, claim("k"))
		leave(t, b, first)
		crash()
		if err := b.Leave(soon(t), first, driver.Exit{}); !driver.Gone(err) {
			t.Errorf("Leave of a claim that had left before the crash answered %v; want ErrGone", err)
		}
		held = granted(t, b, next)
		leave(t, b, held)
		held = hold(t, b, claim("k"))
		crash()
		if err := b.Renew(soon(t), []driver.Ticket{held})[0]; err != nil {
			t.Errorf("Renew of a lock that was granted before the crash: %v", err)
		}
		leave(t, b, held)
	}
	last := hold(t, b, ttl(claim("k"), 500*time.Millisecond))
	leave(t, b, last)
	crash()
	until(t, "the lock that was given back is free", func() bool {
		again, err := b.Enter(soon(t), noWait(claim("k")))
		if err == nil {
			leave(t, b, again)
		}
		return err == nil
	})
	empty(t, b)
}

// TestServerRestartKeepsClaims kills the server as kill -9 does, while a claim is held and
// another one waits.
func TestServerRestartKeepsClaims(t *testing.T) {
	t.Parallel()
	restarts := func(t *testing.T, what *testserver.Server, a, b *sqllock.Backend) {
		t.Helper()
		holder := hold(t, a, claim("k"))
		w := wait(t, b, claim("k"))
		waits := make(chan driver.Ticket)
		ctx := soon(t)
		go func() {
			ticket := w
			for !ticket.Granted && ctx.Err() == nil {
				// An outage is an error; the core waits then, and asks again.
				next, err := b.Await(ctx, ticket)
				if err != nil {
					timer := time.NewTimer(20 * time.Millisecond)
					<-timer.C
				}
				var p *driver.PermanentError
				if errors.As(err, &p) || driver.Gone(err) {
					t.Errorf("Await during an outage answered %v", err)
					break
				}
				if err == nil {
					ticket = next
				}
			}
			waits <- ticket
		}()
		if err := what.Kill(); err != nil {
			t.Fatal(err)
		}
		// A pooler has those wait who are connected to it, for two minutes.
		brief := func() context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		until(t, "the sessions of a server that was killed have noticed", func() bool {
			return second(a.Line(brief(), "k")) != nil && second(b.Line(brief(), "k")) != nil
		})
		for name, err := range map[string]error{
			"Enter": second(a.Enter(brief(), claim("k"))),
			"Renew": a.Renew(brief(), []driver.Ticket{holder})[0],
			"Leave": a.Leave(brief(), driver.Ticket{Claim: claim("k")}, driver.Exit{}),
			"Line":  second(a.Line(brief(), "k")),
		} {
			var p *driver.PermanentError
			if err == nil || errors.As(err, &p) || driver.Gone(err) {
				t.Errorf("%s without a server answered %v; want an error that leaves it open", name, err)
			}
		}
		if err := what.Restart(); err != nil {
			t.Fatal(err)
		}
		// As the core does: a pooler refuses for a moment more.
		until(t, "the lease is renewed after the restart", func() bool {
			err := a.Renew(ctx, []driver.Ticket{holder})[0]
			var p *driver.PermanentError
			if errors.As(err, &p) || driver.Gone(err) {
				t.Fatalf("Renew after the restart: %v", err)
			}
			return err == nil
		})
		if _, err := b.Enter(ctx, noWait(claim("k"))); err == nil || driver.Gone(err) {
			t.Errorf("Enter after the restart answered %v; want a refusal: the lock is held", err)
		}
		leave(t, a, holder)
		got := <-waits
		if !got.Granted || got.Token != w.Token {
			t.Errorf("after the restart the waiter with token %d has %d, granted %v", w.Token, got.Token, got.Granted)
		}
		leave(t, b, got)
		later := hold(t, a, claim("k"))
		if later.Token <= got.Token {
			t.Errorf("token %d after %d", later.Token, got.Token)
		}
		leave(t, a, later)
		empty(t, a)
	}
	t.Run("Direct", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t)
		url := newURLOn(t, s)
		restarts(t, s, listening(t, url), listening(t, url))
	})
	// A PgBouncer that ends, and one whose server does: it waits before it tries again.
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t)
		direct := newURLOn(t, s)
		front := testserver.PgBouncer(t, s, testserver.Config("server_login_retry = 1"))
		url := behind(t, front, direct)
		for _, what := range []*testserver.Server{front, s} {
			restarts(t, what, backend(t, openURL(t, url)), backend(t, openURL(t, url)))
		}
	})
}
