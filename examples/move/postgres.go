package main

import (
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// onPostgres opens the database, and returns what makes a backend on it: each Client has its own.
func onPostgres(url string) (*sql.DB, func() driver.Backend, error) {
	db, err := sql.Open("pgx", url)
	return db, func() driver.Backend {
		return sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true})
	}, err
}
