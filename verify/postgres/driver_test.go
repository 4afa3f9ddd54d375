package postgres_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/verify/mask"
)

func TestOtherDrivers(t *testing.T) {
	t.Parallel()
	mask.Run(t, "fencelock_enter", stdlib.GetDefaultDriver().(sqldriver.DriverContext),
		func(t testing.TB) string { return newURL(t) },
		func(t testing.TB, db *sql.DB) driver.Backend { return backend(t, db) })
}
