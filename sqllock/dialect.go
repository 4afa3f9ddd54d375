package sqllock

import (
	"context"
	"database/sql"

	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
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
		return k.Name
	}
	return "no dialect"
}

// dialect is what differs between databases.
type dialect struct {
	reply.Table
	conns func(config) conns
	// examine reads the settings. It works without tables.
	examine func(ctx context.Context, e *examination) error

	// Of servers:

	create  func(ctx context.Context, c *config, schema string) error // runs the schema
	schemas string                                                    // see tableSet; empty if the DSN names the schema
	missing []string                                                  // codes: a table is not there
	// gone begins the codes of all errors after which a connection is not used again.
	gone []string
}

var dialects = map[Dialect]*dialect{SQLite: &onSQLite, Postgres: &postgres, MySQL: &mysql}

// config is what the parts of a Backend share.
type config struct {
	dialect *dialect
	ctx     context.Context // ends with the Backend
	name    string          // of the dialect
	db      *sql.DB
	prefix  string // of the tables
	create  bool   // create the tables if they are missing
	listen  listen // Options.Listen, or nil
	bad     error  // why no call can succeed
}

// sql puts the prefix into embedded SQL.
func (c *config) sql(text string) string { return swapsql.WithPrefix(text, c.prefix) }

// runSchema runs a schema in one transaction.
func (c *config) runSchema(ctx context.Context, schema string) (err error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			swapsql.CloseConn(conn) // the server may take no writes
		}
		conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	return tx.Commit()
}
