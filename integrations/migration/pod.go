package main

import (
	"bufio"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/integrations/gooselock"
	"github.com/fencelock/fencelock/integrations/migratelock"
	"github.com/fencelock/fencelock/sqllock"
)

//go:embed migrations
var files embed.FS

// key names the lock: the same for all pods of the shop.
const key = "migrate/shop"

// pod brings the database up to date, and then serves.
func pod(ctx context.Context, tool, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()

	// A tool keeps a connection while it waits for its lock, so the lock has a pool of
	// its own, or there must be room for both in one.
	pool, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer pool.Close()
	locks, err := fencelock.New(sqllock.New(pool, sqllock.Postgres, &sqllock.Options{CreateTables: true}),
		&fencelock.Options{TTL: lease, OnEvent: func(e fencelock.Event) {
			switch e.Type {
			case fencelock.EventWaiting:
				fmt.Println("waits")
			case fencelock.EventAcquired:
				fmt.Println("may migrate, token", e.Token)
			}
		}})
	if err != nil {
		return err
	}
	defer locks.Close()

	var up func(context.Context) (applied int, err error)
	switch tool {
	case "goose":
		up, err = withGoose(db)
	case "gooselock":
		up, err = withGoose(db, goose.WithLocker(gooselock.New(locks, key)))
	case "migratelock":
		up, err = withMigrate(db, locks)
	}
	if err != nil {
		return err
	}

	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // all begin at once
		return err
	}
	applied, err := up(ctx)
	if err != nil {
		return err
	}
	var pieces int
	if err := db.QueryRowContext(ctx, "SELECT sum(pieces) FROM stock").Scan(&pieces); err != nil {
		return err
	}
	fmt.Printf("migrations applied: %d; serves %d pieces\n", applied, pieces)
	return nil
}

func withGoose(db *sql.DB, options ...goose.ProviderOption) (func(context.Context) (int, error), error) {
	migrations, err := fs.Sub(files, "migrations/goose")
	if err != nil {
		return nil, err
	}
	options = append(options, goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, options...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (int, error) {
		results, err := p.Up(ctx)
		return len(results), err
	}, nil
}

func withMigrate(db *sql.DB, locks *fencelock.Client) (func(context.Context) (int, error), error) {
	source, err := iofs.New(files, "migrations/migrate")
	if err != nil {
		return nil, err
	}
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	if err != nil {
		return nil, err
	}
	counting := &counter{Driver: migratelock.Wrap(driver, locks, key)}
	m, err := migrate.NewWithInstance("iofs", source, "shop", counting)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (int, error) {
		err := m.Up()
		if errors.Is(err, migrate.ErrNoChange) {
			err = nil
		}
		return counting.applied, err
	}, nil
}
