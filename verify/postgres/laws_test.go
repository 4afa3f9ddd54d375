package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// laws holds PostgreSQL to the laws of package driver, all of them if there are no options.
func laws(t *testing.T, open drivertest.Opener, opts ...drivertest.Option) {
	t.Run("Run", func(t *testing.T) { drivertest.Run(t, open, opts...) })
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, open) })
}

// TestLawsWithListen gives each view a pool of its own, as two processes have, and wakes
// them by NOTIFY.
func TestLawsWithListen(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	laws(t, func(t *testing.T) driver.Backend { return listening(t, url) })
}

// steps are the laws of what a claim goes through. The others are about keys, limits and
// looks, for which it does not matter how many connections there are.
var steps = drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Break", "Mark", "Linger", "Kind", "Wake", "Context", "Close",
	"Concurrent")

// TestLawsOnOneConnection has all views share one connection, and ask for news.
func TestLawsOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openURL(t, newURL(t))
	db.SetMaxOpenConns(1)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, db) }, steps)
}

// TestLawsOfClaimsThatWereMoved has somebody try each lock that was granted, before its holder
// knows of it: the claim is in the row of its line no more.
func TestLawsOfClaimsThatWereMoved(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	drivertest.Run(t, func(t *testing.T) driver.Backend { return moving{listening(t, url)} },
		drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Break", "Mark", "Linger", "Kind"))
}

type moving struct{ *sqllock.Backend }

func (m moving) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ticket, err := m.Backend.Enter(ctx, c)
	if err == nil && ticket.Granted {
		other := noWait(claim(c.Key))
		if _, err := m.Backend.Enter(ctx, other); err == nil {
			return ticket, m.Leave(ctx, driver.Ticket{Claim: other}, driver.Exit{}) // it has ended meanwhile
		}
	}
	return ticket, err
}

// TestLawsBehindPgBouncer has a pooler take the connection away after each transaction.
func TestLawsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	url := newPooled(t)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openURL(t, url)) })
}

// newPooled returns the URL of a new database behind a PgBouncer in transaction pooling.
func newPooled(t testing.TB, params ...string) string {
	t.Helper()
	direct := newURL(t) // first: it ends when nobody is connected to it
	return behind(t, testserver.PgBouncer(t, server), direct, params...)
}

// behind returns the URL of a database behind a PgBouncer.
func behind(t testing.TB, front *testserver.Server, direct string, params ...string) string {
	t.Helper()
	return with(t, front.URL(), databaseOf(t, direct), append(params, "default_query_exec_mode=exec")...)
}

// way is how programs reach a database.
type way struct {
	url    string // theirs
	direct string // past the pooler, for the test itself
	pooled bool
}

// ways plays f straight, and through a PgBouncer in transaction pooling, where nobody can
// listen.
func ways(t *testing.T, f func(t *testing.T, w way)) {
	t.Helper()
	t.Run("Direct", func(t *testing.T) {
		t.Parallel()
		url := newURL(t)
		f(t, way{url: url, direct: url})
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		url := newURL(t)
		f(t, way{url: behind(t, testserver.PgBouncer(t, server), url), direct: url, pooled: true})
	})
}

// backend returns a Backend with a pool of its own.
func (w way) backend(t testing.TB) *sqllock.Backend {
	t.Helper()
	if w.pooled {
		return backend(t, openURL(t, w.url))
	}
	return listening(t, w.url)
}

// start starts a worker.
func (w way) start(t testing.TB, o order) *process {
	t.Helper()
	o.DSN, o.Poll = w.url, w.pooled
	return start(t, o)
}

func databaseOf(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// awkward are settings that roles, databases and programs have for reasons of their own.
var awkward = map[string][]string{
	"Serializable":    {"default_transaction_isolation=serializable"},
	"RepeatableRead":  {"default_transaction_isolation=repeatable read"},
	"CacheDescribe":   {"default_query_exec_mode=cache_describe"},
	"DescribeExec":    {"default_query_exec_mode=describe_exec", "timezone=Asia/Kathmandu", "datestyle=German, DMY"},
	"SimpleProtocol":  {"default_query_exec_mode=simple_protocol", "extra_float_digits=0"},
	"EscapedBytes":    {"bytea_output=escape", "standard_conforming_strings=off", "intervalstyle=sql_standard"},
	"OtherPlans":      {"enable_indexscan=off", "enable_indexonlyscan=off", "enable_nestloop=off", "plan_cache_mode=force_generic_plan"},
	"ImpatientRole":   {"lock_timeout=50", "synchronous_commit=off", "statement_timeout=20s", "idle_in_transaction_session_timeout=1s"},
	"OtherSchema":     {"search_path=app, public"},
	"Latin1":          {},
	"PgBouncerSimple": {"default_query_exec_mode=simple_protocol"},
}

// TestLawsUnderAwkwardSettings compares all answers with the model, creates the tables
// under the same settings, and sees leases end.
func TestLawsUnderAwkwardSettings(t *testing.T) {
	t.Parallel()
	for name, params := range awkward {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t, params...)
			switch name {
			case "OtherSchema":
				do(t, url, "CREATE SCHEMA app")
			case "Latin1":
				url = with(t, url, "")
				database := databaseOf(t, url)
				do(t, server.URL(), "DROP DATABASE "+database)
				do(t, server.URL(), "CREATE DATABASE "+database+" TEMPLATE template0 ENCODING 'LATIN1'")
			case "PgBouncerSimple":
				url = newPooled(t)
				url = with(t, url, "", params...)
			}
			open := func(t *testing.T) driver.Backend { return listening(t, url) }
			if strings.HasPrefix(name, "PgBouncer") {
				open = func(t *testing.T) driver.Backend { return backend(t, openURL(t, url)) }
			}
			drivertest.Model(t, open, 1)
			essentials(t, open(t), open(t))
			if name == "Serializable" {
				b := open(t)
				for range 300 { // at least one sweep
					leave(t, b, hold(t, b, claim("sweeps")))
				}
			}
		})
	}
}

// essentials plays what settings of a session could spoil: the clock, leases that end, a
// hand-over, a mark, a rest, and text of all kinds.
func essentials(t *testing.T, one, other driver.Backend) {
	t.Helper()
	a, b := one.(*sqllock.Backend), other.(*sqllock.Backend)
	began := time.Now()
	c := ttl(claim("k\x00\\'\xff"), 500*time.Millisecond)
	c.Owner, c.Note = "☂ owner", `\x00 '; note`
	key := c.Key
	short := hold(t, a, c)
	// A server in the same room has the same time, in every zone.
	if at := time.UnixMicro(short.Token); at.Before(began.Add(-time.Minute)) || at.After(began.Add(time.Minute)) {
		t.Errorf("the token %d is of %v; want one of now", short.Token, at)
	}
	next := wait(t, b, claim(key))
	if next.Head == nil || next.Head.Owner != c.Owner || next.Head.Note != c.Note {
		t.Errorf("the head is %+v; want owner %q and note %q", next.Head, c.Owner, c.Note)
	}
	next = granted(t, b, next)
	if took := time.Since(began); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("the next in line was granted after %v; want the end of the lease of 500ms", took)
	}
	if err := a.Renew(soon(t), []driver.Ticket{short})[0]; !driver.Gone(err) {
		t.Errorf("Renew after the lease answered %v; want ErrGone", err)
	}
	if next.Token <= short.Token {
		t.Errorf("token %d after %d", next.Token, short.Token)
	}
	if err := b.Renew(soon(t), []driver.Ticket{next})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	var busy *driver.BusyError
	if _, err := a.Enter(soon(t), noWait(claim(key))); !errors.As(err, &busy) || busy.Token != next.Token || busy.Left <= 0 || busy.Left > time.Minute {
		t.Errorf("a try answered %v; want who holds it", err)
	}
	if err := b.Leave(soon(t), next, driver.Exit{Mark: "done \x00\xff"}); err != nil {
		t.Error(err)
	}
	marked := hold(t, a, claim(key))
	if marked.Mark != "done \x00\xff" {
		t.Errorf("the mark is %q; want done", marked.Mark)
	}
	if err := b.Break(soon(t), key, marked.Token, "why ☂"); err != nil {
		t.Error(err)
	}
	var gone driver.ErrGone
	if _, err := a.Enter(soon(t), marked.Claim); !errors.As(err, &gone) || !gone.Broken || gone.Reason != "why ☂" {
		t.Errorf("Enter of a broken claim answered %v; want that", err)
	}
	empty(t, b)
}
