package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/integrations/migratelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

var migrations = fstest.MapFS{
	"1_shop.up.sql":  {Data: []byte("CREATE TABLE shop (id INTEGER PRIMARY KEY);")},
	"2_stock.up.sql": {Data: []byte("CREATE TABLE stock (id INTEGER PRIMARY KEY); INSERT INTO stock VALUES (1);")},
}

func openDB(t *testing.T, path string) *sql.DB {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	steps.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// pod is one program. Its own driver locks nothing that others see.
func pod(t *testing.T, dir string, opts ...fencelock.Option) (*migratelock.Driver, *fencelock.Client) {
	locks := sqllock.New(openDB(t, filepath.Join(dir, "locks.db")), sqllock.SQLite, &sqllock.Options{CreateTables: true})
	c := testclient.New(t, locks, nil)
	t.Cleanup(func() { c.Close() })
	d, err := sqlite.WithInstance(openDB(t, filepath.Join(dir, "shop.db")), &sqlite.Config{})
	steps.Must(t, err)
	return migratelock.Wrap(d, c, "migrate/shop", opts...), c
}

func up(d database.Driver) error {
	files, err := iofs.New(migrations, ".")
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("files", files, "shop", d)
	if err != nil {
		return err
	}
	return m.Up()
}

// TestBeginThatFailsMigratesNothing has Begin end what an earlier pod left: it is called with the lock
// held, and if it fails, nothing is migrated and the lock is free.
func TestBeginThatFailsMigratesNothing(t *testing.T) {
	dir := t.TempDir()
	d, client := pod(t, dir)
	failed := errors.New("the old statement does not end")
	d.Begin = func(context.Context) error {
		if _, err := client.TryLock(t.Context(), "migrate/shop"); !errors.Is(err, fencelock.ErrNotAcquired) {
			t.Errorf("a try in Begin got %v; want that the lock is held", err)
		}
		return failed
	}
	steps.Is(t, "Up", up(d), failed)
	d.Begin = nil
	if version, _, err := d.Version(); err != nil || version != database.NilVersion {
		t.Errorf("the version is %d, %v; want that nothing was migrated", version, err)
	}
	for l, err := range client.Lines(t.Context(), "") {
		t.Errorf("something is left: %v %v", l, err)
	}
}

func TestLockedDatabaseIsSaidToBe(t *testing.T) {
	dir := t.TempDir()
	d, c := pod(t, dir, fencelock.Wait(0))
	if _, err := c.Line(t.Context(), "migrate/shop"); err != nil { // opens the file, which may take longer
		t.Fatal(err)
	}
	_, other := pod(t, dir)
	held, err := other.Lock(t.Context(), "migrate/shop")
	steps.Must(t, err)
	steps.Is(t, "Up beside a holder", up(d), database.ErrLocked)
	steps.Must(t, held.Release(t.Context()))
	steps.OK(t, up(d))
	steps.Is(t, "Unlock without Lock", d.Unlock(), database.ErrNotLocked)
}

// A migration must not begin when the lock is somebody else's by now.
func TestLostLockStopsBeforeTheNextMigration(t *testing.T) {
	d, c := pod(t, t.TempDir())
	steps.Must(t, d.Lock())
	line, err := c.Line(t.Context(), "migrate/shop")
	if err != nil || len(line.Claims) != 1 {
		t.Fatal(line, err)
	}
	if err := c.Break(t.Context(), "migrate/shop", fence.Token(line.Claims[0].Token), fencelock.Break{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	steps.Is(t, "Run", d.Run(strings.NewReader("CREATE TABLE late (id INTEGER);")), fencelock.ErrLost)
	steps.Is(t, "SetVersion", d.SetVersion(1, true), fencelock.ErrLost)
	steps.Is(t, "Unlock", d.Unlock(), fencelock.ErrLost)
}
