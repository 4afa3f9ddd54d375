//go:build verify && unix

package main

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestFullServerIsWaitedFor: an application has all connections that the server takes. A command that
// may wait begins once one is free. Programs and the service are told the same.
func TestFullServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		server := testserver.MariaDB(t)
		db := openURL(t, server.URL())
		_, err := db.ExecContext(t.Context(), "SET GLOBAL max_connections = 10")
		must(t, err)
		waitForFull(t, server.URL(), "Too many connections")
	})
	t.Run("PgBouncer", func(t *testing.T) {
		t.Parallel()
		server := testserver.PgBouncer(t, testserver.Postgres(t), testserver.Config("max_client_conn = 10"))
		waitForFull(t, server.URL(), "no more connections allowed")
	})
}

func waitForFull(t *testing.T, at, says string) {
	t.Helper()
	db := openURL(t, at)
	var conns []*sql.Conn
	full := false
	for range 20 { // MariaDB has one more for an administrator
		conn, err := db.Conn(t.Context())
		if full = err != nil && strings.Contains(err.Error(), says); full {
			break
		}
		must(t, err)
		conns = append(conns, conn)
	}
	if !full {
		t.Fatalf("the server takes %d connections", len(conns))
	}
	refusesFor(t, at, says, func() {
		db.SetMaxIdleConns(-1)
		for _, conn := range conns {
			conn.Close()
		}
	})
}

// TestHolderComesBackToAFullServer: six commands have all connections that a role may have, and more wait for
// one. The connection of the holder breaks: none of those takes its place before it renews.
func TestHolderComesBackToAFullServer(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.Config("max_connections = 8", "superuser_reserved_connections = 0"))
	test, application := sqlOn(t, server), sqlOn(t, server)
	one[int](t, application, "SELECT 1")
	named, err := url.Parse(server.URL())
	must(t, err)
	query := named.Query()
	query.Set("application_name", "holder")
	named.RawQuery = query.Encode()
	s := newStage(t, server.URL())
	holder := s.holds(untilTold, "--url", named.String(), "--ttl", "15s")
	of := func(name string) string {
		return "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE application_name = '" + name + "'"
	}
	eventually(t, "the holder has a connection", func() bool { return one[int](t, test, of("holder")) != 0 })
	var crowd []*proc
	for i := range 9 {
		p := s.start("fencelock", "run", "n", "--", "true")
		p.says([]string{`waiting for "n"`, "asking again"}[i/5])
		crowd = append(crowd, p)
	}
	before := one[int](t, test, of("holder"))
	const asked = "SELECT extract(epoch FROM max(state_change)) FROM pg_stat_activity WHERE application_name = 'holder'"
	renewed := one[float64](t, test, asked)
	eventually(t, "it has just renewed, so it needs no connection for five seconds", func() bool {
		return one[float64](t, test, asked) > renewed
	})
	one[bool](t, test, fmt.Sprintf("SELECT pg_terminate_backend(%d)", before))
	eventually(t, "the holder is back", func() bool {
		now := one[int](t, test, of("holder"))
		return now != 0 && now != before || holder.ended()
	})
	for _, p := range crowd[5:] {
		if strings.Contains(p.err.String(), `waiting for "n"`) {
			t.Errorf("it took the holder's place: %s", p.err.String())
		}
	}
	s.touch("enough")
	holder.wantExit(0)
	for _, p := range crowd {
		p.wantExit(0)
	}
}

// TestHolderComesBackToAFullRedis: a dozen commands begin at the same time and wait, and have all connections that the
// server takes: some want one, the others want one more for messages. All connections of the holder break: none of those
// takes its last place before it renews.
func TestHolderComesBackToAFullRedis(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Config("maxclients 12"))
	o, err := redis.ParseURL(server.URL())
	must(t, err)
	o.PoolSize, o.PipelinePoolSize = 1, -1
	test := redis.NewClient(o)
	defer test.Close()
	s := newStage(t, server.URL())
	holder := s.holds(untilTold, "--url", server.URL()+"?client_name=holder", "--ttl", "15s")
	held := func() (ids []string) {
		list, err := test.ClientList(t.Context()).Result()
		must(t, err)
		for line := range strings.Lines(list) {
			if id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(rest, " name=holder ") {
				ids = append(ids, id)
			}
		}
		return ids
	}
	eventually(t, "the holder has a connection, and one for alarms", func() bool { return len(held()) == 2 })
	var crowd []*proc
	for range 12 {
		crowd = append(crowd, s.start("fencelock", "run", "-v", "-w", "600", "n", "--", "true"))
	}
	for _, p := range crowd {
		eventually(t, "it waits", func() bool {
			text := p.err.String()
			return strings.Contains(text, `waiting for "n"`) || strings.Contains(text, "asking again")
		})
	}
	ends := func() string {
		line, err := test.HGetAll(t.Context(), "fencelock:{n}").Result()
		must(t, err)
		for field, claim := range line {
			if strings.HasPrefix(field, "c:") {
				return claim[:strings.IndexByte(claim, ' ')]
			}
		}
		return ""
	}
	before := ends()
	eventually(t, "it has just renewed, so it needs no connection for five seconds", func() bool { return ends() != before })
	before = ends()
	for _, id := range held() {
		must(t, test.Do(t.Context(), "client", "kill", "id", id).Err())
	}
	eventually(t, "the holder is back", func() bool { return ends() != before || holder.ended() })
	s.touch("enough")
	holder.wantExit(0)
	for _, p := range crowd {
		p.wantExit(0)
	}
}

// TestFailoverOfPostgresWithoutACut: the standby is promoted, the old primary turns read-only and
// goes on, and the address leads to the new one from then on. No connection is cut. run keeps its lock,
// who waits gets the lock, and serve grants locks.
func TestFailoverOfPostgresWithoutACut(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
	s := newStage(t, strings.Replace(primary.URL(), primary.Addr(), address.Addr(), 1))
	holder := s.holds("sleep 1000", "--ttl", "6s")
	waiter := s.start("fencelock", "run", "--ttl", "60s", "-v", "n", "--", "touch", "got")
	v := s.serves()
	v.want(200, "/v1/acquire", object{"key": "before"})
	before, after := sqlOn(t, primary), sqlOn(t, standby)
	const waiting = "SELECT count(*) FROM fencelock_swap WHERE lock_key = 'n' AND (arrivals <> '' AND line <> '' OR " +
		"length(arrivals) - length(replace(arrivals, '\"at\":', '')) > 5 OR line LIKE '%},{%')"
	eventually(t, "the command waits", func() bool { return one[int](t, before, waiting) == 1 })
	eventually(t, "the standby has it all", func() bool {
		var there bool
		err := after.QueryRow(t.Context(), "SELECT ("+waiting+") = 1 AND "+
			"EXISTS (SELECT FROM fencelock_swap WHERE lock_key = 'before')").Scan(&there)
		return err == nil && there
	})

	one[string](t, after, "SELECT pg_promote()::text")
	for _, text := range []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"} {
		_, err := before.Exec(t.Context(), text)
		must(t, err)
	}
	address.Aim(standby.Addr())

	const lease = "SELECT expires FROM fencelock_swap WHERE lock_key = 'n'"
	last := one[int64](t, after, lease)
	for range 3 {
		next := last
		eventually(t, "the lease is renewed at the new primary", func() bool {
			next = max(next, one[int64](t, after, lease))
			return next > last
		})
		last = next
	}
	if holder.ended() {
		t.Fatalf("the holder has lost its lock: %s", holder.err.String())
	}
	eventually(t, "serve grants a lock", func() bool {
		status, _ := v.post("/v1/acquire", object{"key": "after " + time.Now().String()})
		return status == 200
	})
	holder.signal("TERM")
	waiter.wantExit(0)
	steps.OK(t, steps.ErrOf(os.Stat(s.path("got"))))
}
