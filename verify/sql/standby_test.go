package sql_test

import (
	"database/sql"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
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

func staleStandby(t *testing.T) {
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	s := &store{kind: postgres, on: primary}
	link := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
	standby := testserver.PostgresStandby(t, primary, link.Addr())
	hosts, err := url.Parse(primary.URL())
	must(t, err)
	hosts.Host += "," + standby.Addr()
	q := hosts.Query()
	q.Set("target_session_attrs", "read-write")
	hosts.RawQuery = q.Encode()
	const ttl = 30 * time.Second
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
	granted := time.Now()
	must(t, primary.Kill())
	run(t, read, "SELECT pg_promote()")
	second, err := b.Lock(ctx, "key")
	must(t, err)
	if err := first.Err(); err != nil {
		t.Fatalf("the first holder was told before there was a second: %v; this test shows nothing", err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("the second holder's token is %d, the first one's %d", second.Token(), first.Token())
	}
	var resource fence.Gate
	write := func() error { return nil }
	well(t, "the resource refused the second holder", resource.Do(ctx, second.Token(), write))
	steps.Is(t, "the resource let the first holder in", resource.Do(ctx, first.Token(), write), fence.ErrStale)
	until(t, "a renewal tells the first holder", func() bool { // its connection to the primary is broken
		return errors.Is(first.Renew(ctx), fencelock.ErrLost)
	})
	<-first.Context().Done()
	if d := time.Since(granted); d > ttl {
		t.Errorf("the first holder was told %v after its grant; its lease is %v", d, ttl)
	}
	steps.Is(t, "the first holder was told", first.Err(), fencelock.ErrLost)
	steps.Is(t, "Release of the lost lock", first.Release(ctx), fencelock.ErrLost)
	for name, lease := range map[string]*fencelock.Lease{"the second holder": second,
		"who held what the standby knew of": known} {
		if err := lease.Renew(ctx); err != nil {
			t.Errorf("%s cannot renew: %v", name, err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release by %s: %v", name, err)
		}
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
		primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
		link := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		standby := testserver.PostgresStandby(t, primary, link.Addr())
		s := &store{kind: postgres, on: primary}
		db, read := s.openDSN(t, primary.URL()), s.openDSN(t, standby.URL())
		use(t, s.backendOn(t, db), "n")
		until(t, "the standby has the line", func() bool {
			var n int
			return read.QueryRow("SELECT count(*) FROM fencelock_swap").Scan(&n) == nil && n == 1
		})
		link.Close()

		// A pooler knows a statement that writes by its words, and by volatile functions if it knows these.
		writes := `\b(DELETE FROM|UPDATE|INSERT INTO)\b|txid_current`
		known := testserver.SplitReads(t, primary, standby, reads(writes+"|clock_timestamp"))
		unknown := testserver.SplitReads(t, primary, standby, reads(writes))
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
