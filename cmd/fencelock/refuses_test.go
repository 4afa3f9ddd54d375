//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// refusesFor wants a command that may wait to wait for a server that refuses, which says this, and one
// that may not to say so. A program is told the same. end ends the refusal.
func refusesFor(t *testing.T, at, says string, end func()) {
	t.Helper()
	s := newStage(t, at)
	p := s.start("fencelock", "run", "n", "--", "true")
	p.says(says, "asking again")
	s.wants(exitNotAcquired, "run", "-w", "5", "n", "--", "true").wantLine("was not acquired", says)
	// A request before that had no answer makes what a refusal says unsure.
	for args, text := range map[string]string{
		"run -n n -- true": "nothing happened", "ls": "solve that on the server", "doctor --quick": "solve that on the server",
	} {
		eventually(t, args+" is refused with "+says, func() bool {
			p := s.start("fencelock", strings.Fields(args)...)
			code, said := p.wait(), p.err.String()
			return code == exitUnavailable && strings.Contains(said, "refuses for now: "+says) && strings.Contains(said, text)
		})
	}
	locksAt(t, at, says)
	end()
	p.wantExit(0)
}

// locksAt wants the lock of a program to be refused.
func locksAt(t *testing.T, at, says string) {
	t.Helper()
	u, err := storeurl.Parse(at, storeurl.Source{})
	must(t, err)
	open, err := u.Open(t.Context(), storeurl.Config{})
	must(t, err)
	defer open.Close()
	locks, err := fencelock.New(open.Backend, nil)
	must(t, err)
	defer locks.Close()
	eventually(t, "a try is refused with "+says, func() bool {
		_, err := locks.TryLock(t.Context(), "n")
		return errors.Is(err, fencelock.ErrRefused) && strings.Contains(err.Error(), says)
	})
}

// An application has all connections that Redis takes. Redis says so and hangs up.
func TestRedisWithTooManyClientsIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Config("maxclients 4"))
	var conns []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", server.Addr())
		must(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	eventually(t, "the server is full", func() bool {
		answer, err := server.Ask("PING")
		return err != nil || strings.Contains(answer, "max number of clients")
	})
	refusesFor(t, server.URL(), "max number of clients reached", func() {
		for _, c := range conns {
			c.Close()
		}
	})
}

// Redis was restarted, and reads its data.
func TestRedisThatLoadsItsDataIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Persist(true), testserver.Config("appendonly no", "save 3600 1000000", "rdbcompression no"))
	for i := range 600 { // a server that loads answers after each two kilobytes
		_, err := server.Ask("SET", fmt.Sprint("key", i), strings.Repeat("x", 2000))
		must(t, err)
	}
	_, err := server.Ask("SAVE")
	must(t, err)
	restarted := make(chan error, 1)
	slow := testserver.Config("key-load-delay 20000", "loading-process-events-interval-bytes 1024")
	go func() { restarted <- server.Restart(slow) }()
	defer func() { must(t, <-restarted) }()
	enough := func() { _, _ = server.Ask("CONFIG", "SET", "key-load-delay", "0") }
	defer enough()
	eventually(t, "it loads", func() bool {
		answer, err := server.Ask("PING")
		return strings.Contains(fmt.Sprint(answer, err), "LOADING")
	})
	refusesFor(t, server.URL(), "LOADING Redis is loading", enough)
}

// Redis cannot save, and so takes no writes. That is for an administrator, and no command waits for it
// without an end.
func TestRedisThatCannotSaveRefuses(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, testserver.Config("enable-protected-configs yes", "save 3600 1"))
	gone := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(gone, 0o777))
	_, err := server.Ask("CONFIG", "SET", "dir", gone)
	must(t, err)
	must(t, os.Remove(gone))
	_, err = server.Ask("BGSAVE")
	must(t, err)
	eventually(t, "it cannot save", func() bool {
		answer, err := server.Ask("SET", "key", "value")
		return strings.Contains(fmt.Sprint(answer, err), "MISCONF")
	})
	s := newStage(t, server.URL())
	for _, args := range [][]string{
		{"run", "n", "--", "touch", "ran"}, {"run", "-n", "n", "--", "touch", "ran"}, {"run", "-w", "5", "n", "--", "touch", "ran"},
		{"once", "n", "--slot", "hour", "--", "touch", "ran"},
	} {
		s.wants(exitUnavailable, args...).wantLine("refuses for now", "MISCONF", "nothing happened")
	}
	steps.Same(t, "the command ran", s.read("ran"), "")
	s.wants(exitConfig, "doctor")
	locksAt(t, server.URL(), "MISCONF")
	_, err = server.Ask("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	must(t, err)
	s.wants(0, "run", "n", "--", "true")
}

// TestPostgresSaysWhyItLetsAUserNotIn: the reason is not the password.
func TestPostgresSaysWhyItLetsAUserNotIn(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	db := openURL(t, server.URL())
	_, err := db.ExecContext(t.Context(), "CREATE ROLE app NOLOGIN")
	must(t, err)
	s := newStage(t, strings.Replace(server.URL(), "postgres@", "app@", 1))
	s.wants(exitConfig, "run", "-n", "n", "--", "true").wantLine(`does not let this user in: role "app" is not permitted to log in`)
}

// A bridge from the locks of another library says of its server what it would say of its own, and no command runs.
func TestServerThatRefusesAForeignLockSaysWhy(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	_, err := openURL(t, server.URL()).ExecContext(t.Context(), "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
	must(t, err)
	bridge := func(as, format string) *stage {
		return newStage(t, "bridge:"+strings.Replace(server.URL(), "postgres@", as+"@", 1)+"&format="+format+",memory:")
	}
	s := bridge("postgres", "shedlock")
	s.wants(exitConfig, "run", "-n", "n", "--", "touch", "ran").wantLine("the table shedlock is missing")
	s.wants(exitConfig, "doctor", "--quick").wantLine("the table shedlock is missing")
	steps.Same(t, "the command ran", s.read("ran"), "")
	bridge("crowd", "advisory").wants(exitUnavailable, "run", "-n", "n", "--", "true").
		wantLine("refuses for now", "too many connections", "nothing happened")
}

// A Redis in protected mode says why it takes no client of another host, and hangs up. The server is played: the tests
// may have no other host.
func TestRedisInProtectedModeSaysWhy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("-DENIED Redis is running in protected mode because protected mode is enabled and no " +
				"password is set for the default user. In this mode connections are only accepted from the loopback " +
				"interface.\r\n"))
			c.Close()
		}
	}()
	for _, url := range []string{
		"redis://" + l.Addr().String(), "redlock://" + l.Addr().String() + ",127.0.0.1:1,127.0.0.1:2",
		"bridge:redis://" + l.Addr().String() + "?format=setnx,memory:",
	} {
		newStage(t, url).wants(exitConfig, "run", "n", "--", "true").wantLine("requirepass")
	}
}

// A new connection to NATS was not let in, and all that was said is that a buffer is full.
func TestNATSThatLetsAUserNotInSaysSo(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t, testserver.Config("--user", "app", "--pass", "s3cr3t"))
	for _, w := range []wrongURL{
		{"nats://127.0.0.1:1", "", exitUnavailable, "does not answer: nats: no servers available", ""},
		{server.URL(), "", exitConfig, "wants a password", ""},
		{strings.Replace(server.URL(), "//", "//app@", 1), "wr0ng", exitConfig, "refuses the user or the password", ""},
		{strings.Replace(server.URL(), "//", "//app@", 1), "wr0ng", exitConfig, "refuses the user or the password", "doctor --quick"},
	} {
		w.check(t)
	}
	s := newStage(t, strings.Replace(server.URL(), "//", "//app@", 1), envPassword+"=s3cr3t")
	s.must("run", "-n", "n", "--", "true")

	rights := filepath.Join(t.TempDir(), "rights.conf")
	must(t, os.WriteFile(rights, []byte(`authorization { users: [ {user: app, password: s3cr3t, permissions: {publish: x}} ] }`), 0o600))
	server = testserver.NATS(t, testserver.Config("--config", rights))
	p := newStage(t, strings.Replace(server.URL(), "//", "//app@", 1), envPassword+"=s3cr3t").
		wants(exitConfig, "run", "-n", "n", "--", "true")
	p.wantLine("a right that package natslock lists is missing", "STREAM.INFO.KV_fencelock")
	if lines := strings.Count(p.err.String(), "\n"); lines != 1 {
		t.Errorf("%d lines say so; want one:\n%s", lines, p.err.String())
	}
}

// TestWaitingCommandsHaveOneConnectionEach: a server takes eight connections, of which the test has one
// and an application one. One command holds n and five wait; more of them have no connection, and wait
// for that. The application is not shut out, and all get their turn.
func TestWaitingCommandsHaveOneConnectionEach(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.Config("max_connections = 8", "superuser_reserved_connections = 0"))
	s := newStage(t, server.URL())
	test, application := sqlOn(t, server), sqlOn(t, server)
	const ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'"
	holder := s.holds(untilTold)
	var waiting []*proc
	begins := func(flags ...string) *proc {
		p := s.start("fencelock", slices.Concat([]string{"run"}, flags, []string{"n", "--", "touch", fmt.Sprint("ran", len(waiting))})...)
		waiting = append(waiting, p)
		return p
	}
	for i := range 5 {
		begins([]string{"-v", "-w", "600"}[:1+2*(i%2)]...).says(`waiting for "n"`)
	}
	eventually(t, "each has a connection", func() bool { return one[int](t, test, ours) == 6 })
	for _, flags := range [][]string{{"-w", "600"}, nil} {
		begins(flags...).says("too many clients already", "asking again")
	}
	s.wants(9, "run", "-w", "5", "-E", "9", "n", "--", "true").wantLine(`"n" was not acquired`, "too many clients")
	s.wants(exitUnavailable, "run", "-n", "n", "--", "true").wantLine("refuses for now", "too many clients")
	one[int](t, application, "SELECT 1")
	if n := one[int](t, test, ours); n != 6 {
		t.Errorf("six commands have %d connections", n)
	}
	s.touch("enough")
	holder.wantExit(0)
	for i, p := range waiting {
		p.wantExit(0)
		steps.OK(t, steps.ErrOf(os.Stat(s.path(fmt.Sprint("ran", i)))))
	}
}

// sqlOn is a connection for the test itself.
func sqlOn(t *testing.T, server *testserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// one returns what a query answers.
func one[T any](t *testing.T, conn *pgx.Conn, query string) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func openURL(t *testing.T, text string) *sql.DB {
	t.Helper()
	u, err := storeurl.Parse(text, storeurl.Source{})
	must(t, err)
	db, err := u.SQL()
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}
