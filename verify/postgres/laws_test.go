package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
)

// laws holds PostgreSQL to every law of package driver.
func laws(t *testing.T, open drivertest.Opener) {
	t.Run("Run", func(t *testing.T) { drivertest.Run(t, open) })
	t.Run("Model", func(t *testing.T) { drivertest.Model(t, open) })
}

// TestLawsWithListen gives each view a pool of its own, as two processes have, and wakes
// them by NOTIFY.
func TestLawsWithListen(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	laws(t, func(t *testing.T) driver.Backend { return listening(t, url) })
}

// TestLawsOnOneConnection has all views share one connection, and ask for news.
func TestLawsOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openURL(t, newURL(t))
	db.SetMaxOpenConns(1)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, db) })
}

// TestLawsBehindPgBouncer has a pooler take the connection away after each transaction.
func TestLawsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	url := newPooled(t)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openURL(t, url)) })
}

// newPooled returns the URL of a new database behind a PgBouncer in transaction pooling.
func newPooled(t testing.TB, params ...string) string {
	t.Helper()
	url := newURL(t)
	front := testserver.PgBouncer(t, server)
	return with(t, front.URL(), databaseOf(t, url), append(params, "default_query_exec_mode=exec")...)
}

func databaseOf(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
