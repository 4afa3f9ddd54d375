package mariadb_test

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/verify/mask"
)

func TestOtherDrivers(t *testing.T) {
	t.Parallel()
	mask.Run(t, "v1_enter(", mysql.MySQLDriver{},
		func(t testing.TB) string { return newDSN(t, "") },
		func(t testing.TB, db *sql.DB) driver.Backend { return backend(t, db) })
}
