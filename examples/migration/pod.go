package main

import (
	"bufio"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"os"

	"github.com/pressly/goose/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/integrations/gooselock"
	"github.com/fencelock/fencelock/sqllock"
)

//go:embed migrations/*.sql
var files embed.FS

// pod brings the database up to date, and then serves.
func pod(ctx context.Context, lock, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return err
	}

	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if lock == "locked" {
		// goose keeps a connection while it waits for the lock, so the lock has a pool of
		// its own, or there must be room for both in one.
		pool, err := sql.Open("pgx", url)
		if err != nil {
			return err
		}
		defer pool.Close()
		locks := fencelock.New(sqllock.New(pool, sqllock.Postgres, &sqllock.Options{CreateTables: true}),
			&fencelock.Options{TTL: lease, Hooks: fencelock.Hooks{
				Waiting:  func(fencelock.Event) { fmt.Println("waits") },
				Acquired: func(e fencelock.Event) { fmt.Println("may migrate, token", e.Token) },
			}})
		defer locks.Close()
		options = append(options, goose.WithLocker(gooselock.New(locks, "migrate/shop")))
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, options...)
	if err != nil {
		return err
	}

	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // all begin at once
		return err
	}
	applied, err := p.Up(ctx)
	if err != nil {
		return err
	}
	var pieces int
	if err := db.QueryRowContext(ctx, "SELECT sum(pieces) FROM stock").Scan(&pieces); err != nil {
		return err
	}
	fmt.Printf("migrations applied: %d; serves %d pieces\n", len(applied), pieces)
	return nil
}
