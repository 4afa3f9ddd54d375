package mariadb_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/sqllock"
)

// laws holds MariaDB to the laws of package driver, all of them if there are no options.
func laws(t *testing.T, open drivertest.Opener, opts ...drivertest.Option) {
	t.Run("Run", func(t *testing.T) { drivertest.Run(t, open, opts...) })
	t.Run("Model", func(t *testing.T) {
		drivertest.Model(t, open)
		drivertest.Model(t, open, 16115625145578491248) // another process grants where two sizes are in use
	})
}

// TestLaws gives each view a pool of its own, as two processes have.
func TestLaws(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t, "")
	laws(t, func(t *testing.T) driver.Backend { return backend(t, openDSN(t, dsn)) })
}

// steps are the laws of what a claim goes through. The others are about keys, limits and
// looks, for which it does not matter how many connections there are.
var steps = drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Break", "Mark", "Linger", "Kind", "Wake", "Context", "Close",
	"Concurrent")

// TestLawsOnOneConnection has all views share one connection.
func TestLawsOnOneConnection(t *testing.T) {
	t.Parallel()
	db := openDSN(t, newDSN(t, ""))
	db.SetMaxOpenConns(1)
	laws(t, func(t *testing.T) driver.Backend { return backend(t, db) }, steps)
}

// parted is a Backend whose claims have a row of their own each, also if they are alone.
type parted struct {
	*sqllock.Backend
	db *sql.DB
}

func (p parted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ticket, err := p.Backend.Enter(ctx, c)
	if err == nil {
		// Any step that opens the line would do. If it fails, the claim stays where it is.
		_, _ = p.db.ExecContext(ctx, fmt.Sprintf("CALL fencelock_v1_purge(X'%x', 0)", c.Key))
	}
	return ticket, err
}

// TestLawsApart plays them with claims that have had to leave the rows of their lines.
func TestLawsApart(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t, "")
	laws(t, func(t *testing.T) driver.Backend {
		db := openDSN(t, dsn)
		return parted{backend(t, db), db}
	}, steps)
}

// awkward are settings that programs have for reasons of their own.
var awkward = map[string]string{
	"ClientFoundRows":   "clientFoundRows=true",
	"InterpolateParams": "interpolateParams=true&parseTime=true&loc=Asia%2FShanghai&multiStatements=true",
	"TimeZone":          "time_zone=%27%2B05%3A30%27",
	"ForgedNow":         "timestamp=1000000000",
	"Serializable":      "tx_isolation=%27SERIALIZABLE%27",
	"NoAutocommit":      "autocommit=0",
	"ReadOnlySession":   "tx_read_only=1",
	"SafeUpdates":       "sql_safe_updates=1&sql_select_limit=1",
	"Collation":         "charset=latin1&collation=latin1_swedish_ci",
	"OracleMode": "sql_mode=%27ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT," +
		"PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,REAL_AS_FLOAT,NO_UNSIGNED_SUBTRACTION,TIME_ROUND_FRACTIONAL%27",
	"NoMode": "sql_mode=%27%27",
}

// TestLawsUnderAwkwardSettings compares all answers with the model, creates the tables
// under the same settings, and sees leases end.
func TestLawsUnderAwkwardSettings(t *testing.T) {
	mine := strings.NewReplacer()
	if onMySQL(t, openDSN(t, dsnOf(server(t), "", ""))) {
		mine = strings.NewReplacer("tx_", "transaction_", "ORACLE,", "PIPES_AS_CONCAT,", "EMPTY_STRING_IS_NULL,", "",
			"SIMULTANEOUS_ASSIGNMENT,", "", "TIME_ROUND_FRACTIONAL", "TIME_TRUNCATE_FRACTIONAL")
	}
	for name, tail := range awkward {
		tail = mine.Replace(tail)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := newDSN(t, tail)
			open := func(t *testing.T) driver.Backend { return backend(t, openDSN(t, dsn)) }
			drivertest.Model(t, open, 1)
			essentials(t, open(t), open(t))
		})
	}
}
