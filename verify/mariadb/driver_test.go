package mariadb_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/verify/mask"
)

func TestOtherDrivers(t *testing.T) {
	t.Parallel()
	connector := func(t testing.TB) sqldriver.Connector {
		c, err := mysql.MySQLDriver{}.OpenConnector(newDSN(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	mask.Run(t, "v2_enter(", connector, func(t testing.TB, db *sql.DB) driver.Backend { return backend(t, db) })
}
