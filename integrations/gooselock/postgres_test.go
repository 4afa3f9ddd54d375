package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/integrations/gooselock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// slow writes a row when its statement begins and runs for an hour unless it is ended.
var slow = fstest.MapFS{
	"1_slow.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"SELECT nextval('begun'), pg_sleep(CASE WHEN currval('begun') = 1 THEN 3600 ELSE 0 END);\n")},
}

// killedPod is a pod whose connections can be cut as kill -9 of the pod cuts them: nothing is sent
// to the server, which goes on with the statement.
type killedPod struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

var errKilled = errors.New("the pod was killed")

func (k *killedPod) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return nil, errKilled // else pgx would ask the server to cancel the statement
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	k.conns = append(k.conns, c)
	return c, err
}

func (k *killedPod) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	for _, c := range k.conns {
		c.Close()
	}
}

func pgPool(t *testing.T, url, application string, pod *killedPod) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	steps.Must(t, err)
	config.RuntimeParams["application_name"] = application
	if pod != nil {
		config.DialFunc = pod.dial
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	return db
}

// count returns the number that a query selects.
func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	steps.Must(t, db.QueryRow(query).Scan(&n))
	return n
}

// pods migrate one database. Those of a user or an application are named migrate.
type pods struct {
	dialect    goose.Dialect
	migrations fs.FS
	admin      *sql.DB
	running    string   // counts the statements of the migration that run
	clean      []string // have the next pod begin anew
	pool       func(pod *killedPod) *sql.DB
}

// TestPodKilledInAMigrationLeavesAStatement kills a pod in a migration without a transaction. With
// EndSessions the next pod migrates when the statement of the first has ended; without it, next to
// that statement.
func TestPodKilledInAMigrationLeavesAStatement(t *testing.T) {
	server := testserver.Postgres(t)
	leavesAStatement(t, &pods{
		dialect: goose.DialectPostgres, migrations: slow, admin: pgPool(t, server.URL(), "admin", nil),
		running: "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrate' AND state = 'active' " +
			"AND query LIKE '%pg_sleep%'",
		clean: []string{"DROP SEQUENCE IF EXISTS begun", "DROP TABLE IF EXISTS goose_db_version", "CREATE SEQUENCE begun"},
		pool:  func(pod *killedPod) *sql.DB { return pgPool(t, server.URL(), "migrate", pod) },
	})
}

func leavesAStatement(t *testing.T, p *pods) {
	for _, c := range []struct {
		name  string
		begin func(context.Context, *sql.DB) error
		left  int
	}{{"without Begin", nil, 1}, {"EndSessions", gooselock.EndSessions("migrate"), 0}} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range p.clean {
				steps.Must(t, steps.ErrOf(p.admin.Exec(s)))
			}
			store := memlock.New()
			first, pod := testclient.New(t, store, nil), &killedPod{}
			killed := make(chan error, 1)
			go func() { killed <- p.up(t, p.pool(pod), first, nil) }()
			for count(t, p.admin, p.running) == 0 {
				select {
				case err := <-killed:
					t.Fatal("the first pod did not begin:", err)
				case <-time.After(5 * time.Millisecond):
				}
			}
			pod.kill()
			if err := <-killed; err == nil {
				t.Fatal("the killed pod has migrated")
			}
			if n := count(t, p.admin, p.running); n != 1 {
				t.Fatalf("%d statements of the killed pod run; want 1", n)
			}
			second := testclient.New(t, store, nil)
			steps.Must(t, p.up(t, p.pool(nil), second, c.begin))
			if n := count(t, p.admin, p.running); n != c.left {
				t.Errorf("%d statements of the killed pod ran next to the second pod; want %d", n, c.left)
			}
			steps.Must(t, gooselock.EndSessions("migrate")(t.Context(), p.admin))
		})
	}
}

func (p *pods) up(t *testing.T, db *sql.DB, client *fencelock.Client, begin func(context.Context, *sql.DB) error) error {
	locker := gooselock.New(client, "migrate/shop")
	locker.Begin = begin
	provider, err := goose.NewProvider(p.dialect, db, p.migrations, goose.WithLocker(locker))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = provider.Up(ctx)
	return err
}

// slowMariaDB counts its begins and runs for an hour at the first. (MariaDB commits before and after a
// statement of DDL, so that no migration with one is a transaction.)
var slowMariaDB = fstest.MapFS{
	"1_slow.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"UPDATE begun SET n = n + 1;\nSELECT SLEEP(CASE n WHEN 1 THEN 3600 ELSE 0 END) FROM begun;\n")},
}

// TestPodKilledInAMigrationOfMariaDB is TestPodKilledInAMigrationLeavesAStatement on MariaDB, where the
// sessions of migrations are those of a user.
func TestPodKilledInAMigrationOfMariaDB(t *testing.T) {
	server := testserver.MariaDB(t)
	pool := func(user string, pod *killedPod) *sql.DB {
		config := mysql.NewConfig()
		config.User, config.Net, config.Addr, config.DBName = user, "tcp", server.Addr(), "locks"
		if pod != nil {
			config.DialFunc = pod.dial
		}
		connector, err := mysql.NewConnector(config)
		steps.Must(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { db.Close() })
		return db
	}
	admin := pool("root", nil)
	for _, s := range []string{"CREATE USER migrate", "GRANT ALL ON locks.* TO migrate"} {
		steps.Must(t, steps.ErrOf(admin.Exec(s)))
	}
	leavesAStatement(t, &pods{
		dialect: goose.DialectMySQL, migrations: slowMariaDB, admin: admin,
		running: "SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'migrate' AND INFO LIKE 'SELECT SLEEP%'",
		clean: []string{
			"DROP TABLE IF EXISTS begun, goose_db_version", "CREATE TABLE begun (n int)", "INSERT INTO begun VALUES (0)",
		},
		pool: func(pod *killedPod) *sql.DB { return pool("migrate", pod) },
	})
}
