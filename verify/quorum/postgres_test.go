package quorum_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// postgres is the server that tests share which do nothing to it.
var postgres struct {
	sync.Once
	dir    string
	server *testserver.Server
	err    error
}

// postgresServer starts it; stopPostgres ends it.
func postgresServer(t *testing.T) *testserver.Server {
	t.Helper()
	postgres.Do(func() {
		if postgres.dir, postgres.err = os.MkdirTemp("", "quorum"); postgres.err == nil {
			postgres.server, postgres.err = testserver.StartPostgres(context.Background(), postgres.dir)
		}
	})
	check(t, postgres.err)
	return postgres.server
}

func stopPostgres() {
	if postgres.server != nil {
		postgres.server.Stop()
	}
	if postgres.dir != "" {
		os.RemoveAll(postgres.dir)
	}
}

var databases atomic.Int64

// newDatabase makes a database, and returns its URL with query parameters added.
func newDatabase(t *testing.T, s *testserver.Server, params ...string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	do(t, s.URL(), "CREATE DATABASE "+name)
	return databaseURL(t, s, name, params...)
}

func databaseURL(t *testing.T, s *testserver.Server, name string, params ...string) string {
	t.Helper()
	u, err := url.Parse(s.URL())
	check(t, err)
	u.Path = "/" + name
	q := u.Query()
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

// do runs statements on a connection of their own, each in a transaction.
func do(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%.200s: %v", s, err)
		}
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	return conn
}

// postgresMember opens a database as a member.
func postgresMember(t *testing.T, url string, m driver.Membership) *sqllock.Backend {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	check(t, err)
	return memberOn(t, c, m)
}

func memberOn(t *testing.T, c *pgx.ConnConfig, m driver.Membership) *sqllock.Backend {
	t.Helper()
	b := sqllock.New(pool(t, c), sqllock.Postgres, &sqllock.Options{CreateTables: true, Member: &m})
	t.Cleanup(func() { b.Close() })
	return b
}

// pool opens a database until the test ends.
func pool(t *testing.T, c *pgx.ConnConfig) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

// isolations are what a role or a DSN may ask for.
var isolations = []string{"read committed", "repeatable read", "serializable"}

func TestPostgresMemberKeepsTheLaws(t *testing.T) {
	t.Parallel()
	s := postgresServer(t)
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			u := newDatabase(t, s, "default_transaction_isolation", isolation)
			check(t, postgresMember(t, u, lasting).Initialise(t.Context()))
			view := func(t *testing.T) driver.Backend { return postgresMember(t, u, lasting) }
			fresh := func(t *testing.T) driver.Backend { return postgresMember(t, newDatabase(t, s), lasting) }
			if isolation != isolations[0] {
				drivertest.Run(t, view, drivertest.Fresh(t, fresh), drivertest.Topics("Ballot"))
				return
			}
			drivertest.Run(t, view, drivertest.Fresh(t, fresh), drivertest.Topics("Ballot", "Grant", "Token", "Expiry", "Leave", "Break"))
			drivertest.Model(t, view)
			// A claim of one of two sizes is granted by another process.
			drivertest.Model(t, view, 16115625145578491248)
		})
	}
}

// ballotOn is a claim with the clock for its ballot.
func ballotOn(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: fmt.Sprintf("%032x", databases.Add(1)), Capacity: driver.RW, Weight: driver.RW,
		TTL: time.Minute, NoWait: true, Span: 1, Ballot: time.Now().UnixMicro(),
	}
}

// vote takes a lock that must be granted.
func vote(t *testing.T, b *sqllock.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	k, err := b.Enter(t.Context(), c)
	if err != nil || !k.Granted || k.Token != c.Ballot {
		t.Fatalf("the ballot %d on %q was answered with token %d and error %v", c.Ballot, c.Key, k.Token, err)
	}
	return k
}

// One request and one answer for each step of a member, as counted on its connection.
func TestPostgresMemberTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	c, err := pgx.ParseConfig(newDatabase(t, postgresServer(t)))
	check(t, err)
	var trips atomic.Int64
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &counted{Conn: conn, trips: &trips}, err
	}
	db := pool(t, c)
	db.SetMaxOpenConns(1) // each connection prepares a statement for itself
	b := sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true, Member: &lasting})
	t.Cleanup(func() { b.Close() })
	check(t, b.Initialise(t.Context()))
	count := func(f func()) int64 {
		before := trips.Load()
		f()
		return trips.Load() - before
	}
	held := func(c driver.Claim, err error) driver.Ticket {
		check(t, err)
		return driver.Ticket{Claim: c, Token: c.Ballot}
	}
	enter := func(key string) driver.Ticket { return vote(t, b, ballotOn(key)) }
	leave := func(k driver.Ticket) { check(t, b.Leave(t.Context(), k, driver.Exit{})) }
	renew := func(k driver.Ticket) { check(t, b.Renew(t.Context(), []driver.Ticket{k})[0]) }
	// The first time a statement is prepared. One Enter in 256 sweeps idle lines besides;
	// after the one that does, no other will for long.
	again := ballotOn("warm")
	_, err = b.Reenter(t.Context(), again)
	k := held(again, err)
	renew(k)
	leave(k)
	for count(func() { leave(enter("warm")) }) == 2 {
	}
	trip := func(what string, f func()) {
		t.Helper()
		if n := count(f); n != 1 {
			t.Errorf("%s took %d round trips; want 1", what, n)
		}
	}
	trip("Enter with a ballot", func() { k = enter("k") })
	trip("Enter of a lock that is held", func() { b.Enter(t.Context(), ballotOn("k")) })
	trip("Renew", func() { renew(k) })
	trip("Leave", func() { leave(k) })
	again = ballotOn("again")
	trip("Reenter", func() { _, err = b.Reenter(t.Context(), again) })
	trip("Leave of what has re-entered", func() { leave(held(again, err)) })
	trip("Initialise", func() { check(t, b.Initialise(t.Context())) })
}

// counted counts how often a client waits for an answer to what it has written.
type counted struct {
	net.Conn
	asked atomic.Bool
	trips *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(p)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// pgx may have begun to read while it was still writing.
	if n > 0 && c.asked.Swap(false) {
		c.trips.Add(1)
	}
	return n, err
}
