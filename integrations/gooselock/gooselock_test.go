package gooselock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/integrations/gooselock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// migrations fail if they are run twice, or two at a time.
var migrations = fstest.MapFS{
	"1_shop.sql":  {Data: []byte("-- +goose Up\nCREATE TABLE shop (id INTEGER PRIMARY KEY);\n")},
	"2_stock.sql": {Data: []byte("-- +goose Up\nCREATE TABLE stock (id INTEGER PRIMARY KEY);\nINSERT INTO stock VALUES (1);\n")},
}

func openDB(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("sqlite", dsn)
	steps.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// pod is one program: its own database pool and its own client.
func pod(t *testing.T, dir string) (*sql.DB, *fencelock.Client) {
	locks := sqllock.New(openDB(t, sqllock.SQLiteDSN(filepath.Join(dir, "locks.db"))), sqllock.SQLite, &sqllock.Options{CreateTables: true})
	c := testclient.New(t, locks, nil)
	t.Cleanup(func() { c.Close() })
	return openDB(t, "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)"), c
}

func TestMigrationWaitsForTheLock(t *testing.T) {
	dir := t.TempDir()
	db, client := pod(t, dir)
	_, other := pod(t, dir)
	held, err := other.Lock(t.Context(), "migrate/shop")
	steps.Must(t, err)
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations,
		goose.WithLocker(gooselock.New(client, "migrate/shop")))
	steps.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	steps.Is(t, "Up beside a holder", steps.ErrOf(p.Up(ctx)), context.DeadlineExceeded)
	steps.Must(t, held.Release(t.Context()))
	if results, err := p.Up(t.Context()); err != nil || len(results) != len(migrations) {
		t.Errorf("Up answered %v, %v", results, err)
	}
	for l, err := range other.Lines(t.Context(), "") {
		t.Errorf("something is left: %v %v", l, err)
	}
}
