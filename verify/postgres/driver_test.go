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
	connector := func(t testing.TB) sqldriver.Connector {
		c, err := stdlib.GetDefaultDriver().(sqldriver.DriverContext).OpenConnector(newURL(t))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	mask.Run(t, "fencelock_enter", connector, func(t testing.TB, db *sql.DB) driver.Backend { return backend(t, db) })
}
