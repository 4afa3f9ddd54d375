package gooselock_test

import (
	"database/sql"
	"testing"
	"testing/fstest"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

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
