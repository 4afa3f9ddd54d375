package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// This is what no lock on an asynchronous replication can keep, and what is kept all the
// same: a standby is promoted that has not heard of a grant, since its link was cut. A
// second holder is let in beside the first, with a larger token, so a resource that compares
// tokens refuses the first; and the first is told by its next renewal. What the standby had
// heard of goes on.
func TestStaleStandbyLetsASecondHolderInAndTheFirstIsTold(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", staleStandby)
}

// replicated returns a primary, a standby, and the link between them.
func replicated(t *testing.T, o ...testserver.Option) (s *store, standby *testserver.Server, link *faultproxy.Proxy) {
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	link = faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
	return &store{kind: postgres, on: primary}, testserver.PostgresStandby(t, primary, link.Addr(), o...), link
}

// follows waits until a standby has the first line.
func (s *store) follows(t *testing.T, db, read *sql.DB) {
	t.Helper()
	use(t, s.backendOn(t, db), "n")
	until(t, "the standby has the line", func() bool {
		var n int
		return read.QueryRow("SELECT count(*) FROM fencelock_swap").Scan(&n) == nil && n == 1
	})
}

func staleStandby(t *testing.T) {
	s, standby, link := replicated(t)
	primary := s.on
	hosts, err := url.Parse(primary.URL())
	must(t, err)
	hosts.Host += "," + standby.Addr()
	q := hosts.Query()
	q.Set("target_session_attrs", "read-write")
	hosts.RawQuery = q.Encode()
	const ttl = 10 * time.Minute
	client := func() *fencelock.Client {
		b := s.backendOn(t, s.openDSN(t, hosts.String()))
		c := testclient.New(t, b, &fencelock.Options{TTL: ttl})
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := client(), client()
	ctx := t.Context()
	known, err := a.Lock(ctx, "known")
	must(t, err)
	// The standby has it when it has a later write.
	run(t, s.openDSN(t, primary.URL()), "CREATE TABLE seen ()")
	read := s.openDSN(t, standby.URL())
	until(t, "the standby follows", func() bool {
		var there bool
		err := read.QueryRow("SELECT to_regclass('seen') IS NOT NULL").Scan(&there)
		return err == nil && there
	})
	link.Close()
	first, err := a.Lock(ctx, "key", fencelock.NoRenewal()) // it may not ask before there is a second
	must(t, err)
	must(t, primary.Kill())
	run(t, read, "SELECT pg_promote()")
	second, err := b.Lock(ctx, "key")
	must(t, err)
	if err := first.Err(); err != nil {
		t.Fatalf("the first holder was told before there was a second: %v; this test shows nothing", err)
	}
	steps.Rises(t, first.Token(), second.Token())
	var resource fence.Gate
	write := func() error { return nil }
	well(t, "the resource refused the second holder", resource.Do(ctx, second.Token(), write))
	steps.Is(t, "the resource let the first holder in", resource.Do(ctx, first.Token(), write), fence.ErrStale)
	until(t, "a renewal tells the first holder", func() bool { // its connection to the primary is broken
		return errors.Is(first.Renew(ctx), fencelock.ErrLost)
	})
	<-first.Context().Done()
	steps.Is(t, "the first holder was told", first.Err(), fencelock.ErrLost)
	steps.Is(t, "Release of the lost lock", first.Release(ctx), fencelock.ErrLost)
	for name, lease := range map[string]*fencelock.Lease{"the second holder": second,
		"who held what the standby knew of": known} {
		well(t, name+" renews", lease.Renew(ctx))
		well(t, "Release by "+name, lease.Release(ctx))
	}
}

// reads returns what a pooler takes for a read that does not know that these functions write.
func reads(writes string) func(statement string) bool {
	known := regexp.MustCompile(writes)
	return func(text string) bool {
		return regexp.MustCompile(`^(SELECT|WITH)\b`).MatchString(text) && !known.MatchString(text)
	}
}

// TestReadsAreAnsweredByAStandby: a pooler sends reads to a standby that does not hear of what the
// primary does any more. A waiter sees its own grant all the same, and no hand-over costs a lease.
func TestReadsAreAnsweredByAStandby(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		s, standby, link := replicated(t)
		db, read := s.openDSN(t, s.on.URL()), s.openDSN(t, standby.URL())
		s.follows(t, db, read)
		link.Close()

		// A pooler knows a statement that writes by its words, and by volatile functions if it knows these.
		writes := `\b(DELETE FROM|UPDATE|INSERT INTO)\b|txid_current`
		known := testserver.SplitReads(t, s.on, standby, reads(writes+"|clock_timestamp"))
		unknown := testserver.SplitReads(t, s.on, standby, reads(writes))
		t.Run("VolatileFunctionsAreKnown", func(t *testing.T) {
			s.handOversAt(t, db, known.Addr())
			if n := known.FromStandby(); n != 0 { // the time of the server makes each statement one for the primary
				t.Errorf("the standby has answered %d statements of a hand-over; want none", n)
			}
		})
		t.Run("OnlyWritesAreKnown", func(t *testing.T) { s.handOvers(t, db, unknown) })
		t.Run("LineIsNotThatOfTheStandby", func(t *testing.T) {
			holder := s.backendOn(t, db)
			held := hold(t, holder, claim("m"))
			dsn := strings.Replace(s.on.URL(), s.on.Addr(), unknown.Addr(), 1) + "&default_query_exec_mode=exec"
			line, err := s.backendOn(t, s.openDSN(t, dsn)).Line(soon(t), "m")
			if err == nil && len(line.Claims) == 0 {
				t.Error("the line of a lock that is held is empty; want its claim, or an error")
			}
			leave(t, holder, held)
		})
		// The other server takes writes, so that only the state of the line tells that it is old.
		run(t, read, "SELECT pg_promote()")
		t.Run("OldCopyThatTakesWrites", func(t *testing.T) { s.handOvers(t, db, unknown) })
	})
}

// handOvers has three clients behind p take a lock from one another. A busy server may take longer than Release
// waits, and then the Client goes on behind: what counts is that the next one has it long before a lease is over.
func (s *store) handOvers(t *testing.T, db *sql.DB, p *testserver.Splitter) {
	t.Helper()
	s.handOversAt(t, db, p.Addr())
	if p.FromStandby() == 0 {
		t.Error("the standby has answered nothing; this test shows nothing")
	}
}

func (s *store) handOversAt(t *testing.T, db *sql.DB, addr string) {
	t.Helper()
	dsn := strings.Replace(s.on.URL(), s.on.Addr(), addr, 1) + "&default_query_exec_mode=exec"
	var clients []*fencelock.Client
	for range 3 {
		c := testclient.New(t, s.backendOn(t, s.openDSN(t, dsn)), &fencelock.Options{TTL: 10 * time.Minute})
		t.Cleanup(func() { c.Close() })
		clients = append(clients, c)
	}
	givesBack := func(l *fencelock.Lease) {
		t.Helper()
		if err := l.Release(steps.Soon(t)); err != nil && !errors.Is(err, fencelock.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	held, err := clients[0].Lock(steps.Soon(t), "n")
	must(t, err)
	for i := range 6 {
		var next *fencelock.Lease
		granted := behind(func() (err error) {
			next, err = clients[(i+1)%len(clients)].Lock(steps.Soon(t), "n")
			return err
		})
		until(t, "a client waits", func() bool {
			return inLine(t, s.backendOn(t, db), "n") == 2
		})
		givesBack(held)
		if err := <-granted; err != nil {
			t.Fatalf("hand-over %d: %v", i, err)
		}
		held = next
	}
	givesBack(held)
}

// openAll opens so many connections of a pool.
func openAll(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conn, err := db.Conn(soon(t))
		must(t, err)
		conns[i] = conn
	}
	for _, conn := range conns {
		conn.Close()
	}
}

// TestPrimaryTurnsReadOnlyUnderOpenConnections: an administrator makes the server read-only, and the
// address of the database leads to another server, without a cut. No call fails for want of a connection
// to the new one, whichever connection of the pool it gets, and whoever listens listens there.
func TestPrimaryTurnsReadOnlyUnderOpenConnections(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		s, standby, _ := replicated(t)
		primary := s.on
		address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		dsn := strings.Replace(primary.URL(), primary.Addr(), address.Addr(), 1)
		db := s.openDSN(t, dsn)
		b := s.new(t, db, &sqllock.Options{CreateTables: true, Listen: listenOn(dsn)})
		holder := hold(t, b, claim("held"))
		w := wait(t, b, claim("held"))
		old, read := s.openDSN(t, primary.URL()), s.openDSN(t, standby.URL())
		listening := "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
		answer := behind(func() error { return second(b.Await(soon(t), w)) })
		until(t, "it listens", func() bool { return column[int](t, old, listening)[0] == 1 })
		well(t, "Await", <-answer)
		until(t, "the standby has it all", func() bool {
			var n int
			err := read.QueryRow("SELECT count(*) FROM fencelock_swap WHERE lock_key = 'held' AND arrivals <> ''").Scan(&n)
			return err == nil && n == 1
		})
		openAll(t, db, 7) // the Backend keeps one for renewals

		run(t, read, "SELECT pg_promote()")
		run(t, old, "ALTER SYSTEM SET default_transaction_read_only = on")
		run(t, old, "SELECT pg_reload_conf()")
		address.Aim(standby.Addr())
		until(t, "the old primary takes no writes", func() bool {
			return column[string](t, old, "SHOW transaction_read_only")[0] == "on"
		})
		for range 8 {
			renewed(t, b, holder)
		}
		next := behind(func() error { return second(b.Await(soon(t), w)) })
		until(t, "it listens at the new primary", func() bool { return column[int](t, read, listening)[0] == 1 })
		well(t, "Await", <-next)
		leave(t, b, holder)
		leave(t, b, granted(t, b, w))
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		primary, other := testserver.MariaDB(t), testserver.MariaDB(t)
		s := &store{kind: mariaDB, on: primary}
		address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		for _, server := range []*testserver.Server{primary, other} {
			admin := s.openDSN(t, dsnOf(t, server, server.Addr(), "root"))
			run(t, admin, "CREATE USER app")
			run(t, admin, "GRANT ALL ON locks.* TO app")
			use(t, s.backendOn(t, admin), "n")
			if server == other {
				hold(t, s.backendOn(t, admin), claim("there"))
			}
		}
		db := s.openDSN(t, dsnOf(t, primary, address.Addr(), "app"))
		b := s.backendOn(t, db)
		openAll(t, db, 8)
		run(t, s.openDSN(t, dsnOf(t, primary, primary.Addr(), "root")), "SET GLOBAL read_only = 1")
		address.Aim(other.Addr())
		// After one step, the other connections still lead to the old server. None of them may tell how
		// a line stands there.
		use(t, b, "n")
		for range 8 {
			l, err := b.Line(soon(t), "there")
			must(t, err)
			if len(l.Claims) != 1 {
				t.Fatalf("the line is %+v; want the claim that the other server has", l)
			}
			conn, err := db.Conn(soon(t)) // the next one is over another connection
			must(t, err)
			defer conn.Close()
			if db.Stats().Idle == 0 {
				break
			}
		}
	})
}

// TestInnoDBThatIsReadOnly: a server was started with innodb_read_only, for a backup or after damage.
func TestInnoDBThatIsReadOnly(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	s := &store{kind: mariaDB, on: server}
	db := s.openDSN(t, dsnOf(t, server, server.Addr(), "root"))
	b := s.backendOn(t, db)
	held := hold(t, b, ttl(claim("held"), time.Hour))
	run(t, db, "SHUTDOWN") // with changes to recover, it would not start read-only
	<-server.Done()
	must(t, server.Restart(testserver.Config("innodb_read_only=ON")))
	until(t, "the connections that were cut are used up", func() bool {
		_, err := b.Line(soon(t), "k")
		return db.Stats().OpenConnections <= 1 && err == nil
	})
	refusedForNow(t, b, held, "connect to the primary")
	must(t, server.Restart(testserver.Config("innodb_read_only=OFF")))
	until(t, "the server takes writes", func() bool { return renew(b, soon(t), held) == nil })
	leave(t, b, held)
}

// refusedForNow: each step that writes is refused, has not happened, and says so with these words.
func refusedForNow(t *testing.T, b *sqllock.Backend, held driver.Ticket, words ...string) {
	t.Helper()
	for name, call := range map[string]func(context.Context) error{
		"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim("k"))) },
		"Renew": func(ctx context.Context) error { return renew(b, ctx, held) },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, held, driver.Exit{}) },
		"Break": func(ctx context.Context) error { return b.Break(ctx, held.Key, held.Token, driver.Break{}) },
	} {
		err := call(soon(t))
		says(t, name, err, driver.ErrRefused, words...)
		steps.Same(t, name+" is refused for good", permanent(err), false)
	}
}

// dsnOf is how go-sql-driver/mysql gets to a server.
func dsnOf(t *testing.T, server *testserver.Server, addr, user string) string {
	t.Helper()
	u, err := url.Parse(server.URL())
	must(t, err)
	return user + "@tcp(" + addr + ")" + u.Path
}
