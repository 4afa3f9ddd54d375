package storeurl

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/sqllock"
)

// connLife bounds the life of a connection to a database server. After a failover without a cut, an
// address may lead elsewhere while the old server goes on, and nothing tells.
const connLife = 10 * time.Minute

// onSQL makes a Store of a database, which it closes with the Store.
func onSQL(db *sql.DB, d sqllock.Dialect, o *sqllock.Options, c *Config) *Store {
	// To open a connection costs more than to lock, so all are kept.
	if d == sqllock.SQLite {
		// It uses five by itself: one writes and four read. A pool with a bound, for which a statement
		// may have to wait, would cost a goroutine for each statement.
		db.SetMaxIdleConns(5)
	} else {
		db.SetMaxOpenConns(c.maxConns())
		db.SetMaxIdleConns(c.maxConns())
		db.SetConnMaxLifetime(connLife)
	}
	b := sqllock.New(db, d, o)
	return &Store{Backend: b, ping: readLine(b), close: func() { _ = db.Close() }}
}

// SQL opens the database that keeps the locks, for tests that change what is in it.
func (u *URL) SQL() (*sql.DB, error) {
	switch u.Scheme {
	case "sqlite", "local":
		return u.sqliteDB()
	case "postgres", "postgresql":
		config, err := u.postgresConfig(&Config{Prepare: true})
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config), nil
	case "mysql", "mariadb":
		return u.mysqlDB()
	}
	return nil, fmt.Errorf("%s is no database", u.Scheme)
}
