package doctor_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// A remedy is alternatives, of which the first with a statement is followed. Its statements
// follow each other with "then". What stands before a colon says when it applies.
var (
	alternative = regexp.MustCompile(`; (?:or|but) `)
	statement   = regexp.MustCompile(`^(?:[a-z ]+: )?((?:ALTER|SET|SELECT|CONFIG|ACL|PRAGMA|etcdctl) .*|` +
		`[\w.]+=\S+ in zoo\.cfg|a TTL of \S+ or more)`)
	everywhere = regexp.MustCompile(` on every (node|member)$`)
)

// statements are those of a remedy, or none.
func statements(remedy string) (all []string) {
	for _, a := range alternative.Split(remedy, -1) {
		if m := statement.FindStringSubmatch(a); m != nil {
			whole, _, _ := strings.Cut(m[1], "; ")
			return strings.Split(everywhere.ReplaceAllString(whole, ""), ", then ")
		}
	}
	return nil
}

// follow does what doctor says of a store, word for word, until there is nothing more to do, and
// wants each remedy to take its finding away. It returns the findings whose remedy is no statement.
func follow(t *testing.T, open func() driver.Backend, do func(statements []string) error) (left []health.Finding) {
	t.Helper()
	ttl := time.Minute
	return followFrom(t, &ttl, open, do)
}

// followFrom is follow for leases of a TTL, which a remedy may change.
func followFrom(
	t *testing.T, ttl *time.Duration, open func() driver.Backend, do func(statements []string) error,
) (left []health.Finding) {
	t.Helper()
	followed := map[string]string{} // the remedy: that of what is measured changes with the machine
	for again := true; again; {
		again, left = false, nil
		for _, f := range check(t, open(), *ttl).Findings {
			texts, name := statements(f.Remedy), strings.TrimSpace(fmt.Sprint(f.Severity, " ", f.Code, " ", f.Setting, " ", f.Server))
			switch {
			case f.Code == "lock-refused": // do what the message says, which is another finding
			case len(texts) == 0 && slices.Contains(measured, f.Code):
			case len(texts) == 0:
				left = append(left, f)
			case followed[name] == f.Remedy:
				t.Fatalf("%s is found after its remedy was followed: %s", name, f.Remedy)
			default:
				if err := do(texts); err != nil {
					t.Fatalf("the remedy of %s cannot be followed: %s: %v", name, f.Remedy, err)
				}
				t.Logf("%s: %q", name, texts)
				followed[name], again = f.Remedy, true
			}
		}
	}
	for name := range followed {
		feeds(t, strings.Fields(name)[1])
	}
	return left
}

// longer follows "a TTL of … or more".
func longer(ttl *time.Duration, statement string) (followed bool, err error) {
	text, found := strings.CutPrefix(statement, "a TTL of ")
	if !found {
		return false, nil
	}
	*ttl, err = time.ParseDuration(strings.TrimSuffix(text, " or more"))
	return true, err
}

// ask sends statements to each of some Redis servers.
func ask(servers ...*testserver.Server) func(statements []string) error {
	return func(statements []string) error {
		for _, text := range statements {
			for _, s := range servers {
				if _, err := s.Ask(strings.Fields(text)...); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
		}
		return nil
	}
}

// standbyOf starts a standby and waits until it is connected.
func standbyOf(t *testing.T, s *testserver.Server) *testserver.Server {
	t.Helper()
	db, _ := database(t, s.URL())
	standby := testserver.PostgresStandby(t, s, s.Addr())
	until(t, "the standby is connected", func() bool {
		var n int
		return db.QueryRow("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&n) == nil && n == 1
	})
	return standby
}

// replicaOf starts a replica of a Redis server and waits until the server counts it.
func replicaOf(t *testing.T, master *testserver.Server) *testserver.Server {
	t.Helper()
	replica := testserver.Redis(t, testserver.Persist(true))
	must(t, replica.Follow(master.Addr()))
	until(t, "the replica follows", func() bool {
		info, err := master.Ask("INFO", "replication")
		return err == nil && strings.Contains(info, "state=online")
	})
	return replica
}

// onOneSession runs statements as a person does who types them in: in one session.
func onOneSession(t *testing.T, url string) func([]string) error {
	return func(statements []string) error {
		db, _ := database(t, url)
		defer db.Close()
		conn, err := db.Conn(t.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, s := range statements {
			if _, err := conn.ExecContext(t.Context(), s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
}

func codes(findings []health.Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.Code)
	}
	return strings.Join(all, ", ")
}

func TestAdviceForPostgresCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "postgres-fsync", "postgres-idle-in-transaction", "postgres-synchronous-commit", "postgres-isolation",
		"postgres-statement-timeout", "postgres-read-only", "postgres-async-standby", "postgres-standby")
	s := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	_, run := database(t, s.URL())
	standby := standbyOf(t, s)
	run("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET idle_in_transaction_session_timeout = 0", "SELECT pg_reload_conf()",
		`CREATE ROLE "an App" SUPERUSER LOGIN`)
	for _, setting := range []string{"synchronous_commit = off", "statement_timeout = '2s'",
		"default_transaction_isolation = 'serializable'", "default_transaction_read_only = on"} {
		run(`ALTER ROLE "an App" SET ` + setting)
	}
	url := strings.Replace(s.URL(), "postgres://postgres@", "postgres://an%20App@", 1)
	here := func() driver.Backend { return open(t, url).Backend }
	finds(t, here(), time.Minute, "error postgres-fsync", "warning postgres-synchronous-commit", "note postgres-isolation",
		"note postgres-idle-in-transaction", "warning postgres-statement-timeout", "warning postgres-async-standby",
		"error postgres-read-only", "error lock-refused")
	left := follow(t, here, onOneSession(t, url))
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	// What a lease of 50 s allows is too short for one of a minute.
	run(`ALTER ROLE "an App" SET statement_timeout = '5s'`)
	finds(t, here(), 50*time.Second)
	finds(t, here(), time.Minute, "warning postgres-statement-timeout")

	// To whom is connected to a standby it says how to write a URL of all servers.
	left = follow(t, func() driver.Backend { return open(t, standby.URL()).Backend }, onOneSession(t, standby.URL()))
	if got := codes(left); got != "postgres-standby" || left[0].Severity != health.Error {
		t.Fatalf("left at the standby: %s", got)
	}
	form := regexp.MustCompile(`postgres://[^ :]+`).FindString(left[0].Remedy)
	all := strings.NewReplacer("user", "postgres", "host1", standby.Addr(), "host2", s.Addr(), "/db", "/postgres").Replace(form)
	if left := follow(t, func() driver.Backend { return open(t, all+"?sslmode=disable").Backend }, nil); len(left) > 0 {
		t.Errorf("%s: %v", all, left)
	}
	feeds(t, "postgres-standby")
}

func TestAdviceForPgBouncerCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "postgres-pooler", "postgres-listen")
	s := testserver.Postgres(t, testserver.Config("fsync = on", "idle_in_transaction_session_timeout = '10min'"))
	through := func(setting string) driver.Backend {
		return open(t, testserver.PgBouncer(t, s, testserver.Config(setting)).URL()).Backend
	}
	finds(t, through("pool_mode = session"), time.Minute, "warning postgres-listen")
	statement := through("pool_mode = statement")
	finds(t, statement, time.Minute, "warning postgres-pooler", "warning postgres-listen")
	for _, f := range follow(t, func() driver.Backend { return statement }, nil) {
		switch setting, _, _ := strings.Cut(f.Remedy, " in pgbouncer.ini"); {
		case setting != f.Remedy:
			finds(t, through(setting), time.Minute, "note postgres-pooler", "warning postgres-listen")
			feeds(t, "postgres-pooler")
		case strings.HasPrefix(f.Remedy, "name PostgreSQL itself in the URL"):
			finds(t, open(t, s.URL()).Backend, time.Minute)
			feeds(t, "postgres-listen")
		default:
			t.Errorf("nobody can follow %q", f.Remedy)
		}
	}

	db, _ := database(t, s.URL())
	finds(t, sqllock.New(db, sqllock.Postgres, nil), time.Minute, "note postgres-listen")
	db.SetMaxOpenConns(1)
	finds(t, sqllock.New(db, sqllock.Postgres, nil), time.Minute, "note postgres-listen", "note postgres-pooler")
}

func TestAdviceForMariaDBCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "mysql-flush-log", "mysql-sync-binlog", "mysql-wait-timeout", "mysql-isolation", "mysql-lock-wait",
		"mysql-read-only")
	s := testserver.MariaDB(t, testserver.Config("log-bin=log"))
	_, run := database(t, s.URL())
	run("SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL sync_binlog = 0", "SET GLOBAL wait_timeout = 19",
		"SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET GLOBAL innodb_lock_wait_timeout = 0",
		"SET GLOBAL read_only = ON")
	here := func() driver.Backend { return open(t, s.URL()).Backend }
	finds(t, here(), time.Minute, "warning mysql-flush-log", "warning mysql-sync-binlog", "warning mysql-wait-timeout",
		"warning mysql-lock-wait", "note mysql-isolation", "error mysql-read-only")
	if left := follow(t, here, onOneSession(t, s.URL())); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	run("SET GLOBAL innodb_lock_wait_timeout = 50") // as it is at first: a lease of a minute is longer
	finds(t, here(), time.Minute)
	finds(t, here(), 49*time.Second, "note mysql-lock-wait")
}

func TestAdviceForSQLiteCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "sqlite-journal", "sqlite-synchronous")
	for journal, severity := range map[string]string{"DELETE": "note", "OFF": "error", "MEMORY": "error"} {
		path := filepath.Join(t.TempDir(), "locks.db")
		pragmas := map[string]string{"journal_mode": journal, "synchronous": "OFF"}
		open := func() driver.Backend {
			var dsn []string
			for name, value := range pragmas {
				dsn = append(dsn, "_pragma="+name+"("+value+")")
			}
			return onFile(t, path, strings.Join(dsn, "&"))
		}
		finds(t, open(), time.Minute, severity+" sqlite-journal", "warning sqlite-synchronous")
		left := follow(t, open, func(texts []string) error {
			for _, text := range texts { // in the DSN, as the remedy says
				name, value, _ := strings.Cut(strings.TrimPrefix(text, "PRAGMA "), " = ")
				pragmas[name] = value
			}
			return nil
		})
		if len(left) > 0 {
			t.Errorf("these are left: %v", left)
		}
	}
}

func TestAdviceForRedisCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "redis-eviction", "redis-fsync", "redis-no-persistence", "redis-min-replicas", "redis-rights", "redis-unreadable")
	master := testserver.Redis(t, testserver.Persist(true), testserver.Config("repl-diskless-sync-delay 0"))
	replicaOf(t, master)
	config(t, master, "maxmemory 100mb", "maxmemory-policy volatile-ttl", "appendfsync no", "appendonly no")
	must(t, ask(master)([]string{"ACL SETUSER locks on >p ~* &* +@all -info -config -zadd"}))
	url := strings.Replace(master.URL(), "redis://", "redis://locks:p@", 1)
	at := func() driver.Backend { return open(t, url).Backend }
	finds(t, open(t, master.URL()).Backend, time.Minute,
		"error redis-eviction", "warning redis-no-persistence", "warning redis-min-replicas")
	finds(t, at(), time.Minute, // a lock that no other client requests needs no ZADD
		"note redis-unreadable", "note redis-unreadable", "error redis-rights")
	if left := follow(t, at, ask(master)); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	for when, severity := range map[string]string{"no": "warning", "everysec": "note"} {
		config(t, master, "appendfsync "+when)
		finds(t, at(), time.Minute, severity+" redis-fsync")
		if left := follow(t, at, ask(master)); len(left) > 0 {
			t.Errorf("these are left with appendfsync %s: %v", when, left)
		}
	}
}
