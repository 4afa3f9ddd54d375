package sqlite_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
)

// laws holds SQLite to the laws of package driver, all of them if there are no options.
func laws(t *testing.T, open drivertest.Opener, opts ...drivertest.Option) {
	t.Run("Run", func(t *testing.T) { drivertest.Run(t, open, opts...) })
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, open) })
}

// steps are the laws of what a claim goes through. The others are about keys, limits and
// looks, which are the same however a database is opened, and are held by TestLaws.
var steps = drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Break", "Mark", "Linger", "Kind", "Wake", "Context", "Close",
	"Concurrent")

// TestLaws gives each view a pool of its own, as two processes have.
func TestLaws(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openFile(t, path)) })
}

// TestLawsOnOneConnection has all views share one connection.
func TestLawsOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openFile(t, newFile(t))
	db.SetMaxOpenConns(1)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, db) }, steps)
}

// TestLawsWithoutAnyPragma opens a bare path, and a file that keeps its rollback
// journal because it is in use already.
func TestLawsWithoutAnyPragma(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	if _, err := openDSN(t, path).Exec("CREATE TABLE app (x)"); err != nil {
		t.Fatal(err)
	}
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openDSN(t, path)) }, steps)
	var mode string
	// A connection that has been open since would say what it knew then.
	if err := openDSN(t, path).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "delete" {
		t.Errorf("the journal mode of the program's file is %q, %v; want it as it was", mode, err)
	}
}

// TestLawsWithBusyTimeout lets SQLite wait inside of its statements.
func TestLawsWithBusyTimeout(t *testing.T) {
	t.Parallel()
	dsn := "file:" + newFile(t) + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openDSN(t, dsn)) }, steps)
}
