package gooselock_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/integrations/gooselock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// slowMariaDB counts its begins and runs for an hour at the first. (MariaDB commits before and after a
// statement of DDL, so that no migration with one is a transaction.)
var slowMariaDB = fstest.MapFS{
	"1_slow.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"UPDATE begun SET n = n + 1;\nSELECT SLEEP(CASE n WHEN 1 THEN 3600 ELSE 0 END) FROM begun;\n")},
}

const runningMariaDB = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'migrate' AND INFO LIKE 'SELECT SLEEP%'"

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
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { db.Close() })
		return db
	}
	admin := pool("root", nil)
	for _, s := range []string{"CREATE USER migrate", "GRANT ALL ON locks.* TO migrate"} {
		if _, err := admin.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		begin func(context.Context, *sql.DB) error
		left  int
	}{{"without Begin", nil, 1}, {"EndSessions", gooselock.EndSessions("migrate"), 0}} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range []string{"DROP TABLE IF EXISTS begun, goose_db_version", "CREATE TABLE begun (n int)", "INSERT INTO begun VALUES (0)"} {
				if _, err := admin.Exec(s); err != nil {
					t.Fatal(err)
				}
			}
			store := memlock.New()
			pod, killed := &killedPod{}, make(chan error, 1)
			go func() { killed <- migrateMariaDB(t, pool("migrate", pod), testclient.New(t, store, nil), nil) }()
			testserver.Eventually(t, time.Minute, "the first pod migrates", func() bool { return count(t, admin, runningMariaDB) > 0 })
			pod.kill()
			if err := <-killed; err == nil {
				t.Fatal("the killed pod has migrated")
			}
			second := testclient.New(t, store, nil)
			if err := migrateMariaDB(t, pool("migrate", nil), second, c.begin); err != nil {
				t.Fatal(err)
			}
			if n := count(t, admin, runningMariaDB); n != c.left {
				t.Errorf("%d statements of the killed pod ran next to the second pod; want %d", n, c.left)
			}
			if err := gooselock.EndSessions("migrate")(t.Context(), admin); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func migrateMariaDB(t *testing.T, db *sql.DB, client *fencelock.Client, begin func(context.Context, *sql.DB) error) error {
	locker := gooselock.New(client, "migrate/shop")
	locker.Begin = begin
	p, err := goose.NewProvider(goose.DialectMySQL, db, slowMariaDB, goose.WithLocker(locker))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = p.Up(ctx)
	return err
}
