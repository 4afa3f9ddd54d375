package sqllock

import (
	"context"
	"database/sql"

	"github.com/fencelock/fencelock/internal/swapsql"
)

// Dialect says which database a *sql.DB speaks to.
type Dialect int

// The dialects. The zero Dialect is none.
const (
	_ Dialect = iota
	// SQLite is SQLite 3.37 or later, on a file system of this host.
	SQLite
	// Postgres is PostgreSQL 12 or later.
	Postgres
	// MySQL is MariaDB 10.6 or later, or MySQL. The package comment says which versions are tested.
	MySQL
)

// String returns the name of the dialect in lower case, as in a URL.
func (d Dialect) String() string {
	if k, ok := dialects[d]; ok {
		return k.name
	}
	return "no dialect"
}

// dialect is what differs between databases.
type dialect struct {
	name  string
	swap  *swapsql.Dialect
	conns func(config) conns
	// examine reads the settings. It works without tables.
	examine func(ctx context.Context, e *examination) error
	listen  bool // Options.Listen is of use
}

var dialects = map[Dialect]dialect{
	SQLite: {
		name: "sqlite", swap: swapsql.SQLite, conns: newSQLite, examine: examineSQLite,
	},
	Postgres: {
		name: "postgres", swap: swapsql.Postgres, conns: openPostgres, examine: examinePostgres, listen: true,
	},
	MySQL: {
		name: "mysql", swap: swapsql.MySQL, conns: openMySQL, examine: examineMySQL,
	},
}

// config is what a dialect gets to open a store. Opening asks nobody.
type config struct {
	ctx    context.Context // ends with the Backend
	name   string          // of the dialect
	db     *sql.DB
	names  names
	create bool   // create the tables if they are missing
	listen listen // Options.Listen, or nil
	bad    error  // why no call can succeed
}

// runSchema runs a schema in one transaction.
func (c *config) runSchema(ctx context.Context, schema string) (err error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			closeConn(conn) // the server may take no writes
		}
		conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, c.names.sql(schema)); err != nil {
		return err
	}
	return tx.Commit()
}
