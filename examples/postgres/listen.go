package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// listen is an Options.Listen for pgx: it hears notifications on a connection of its own,
// which must lead to PostgreSQL itself. Through PgBouncer in transaction mode a LISTEN is
// lost, so it first notifies itself, and says so if nothing comes back: whoever waits asks
// the database then, as without Listen.
func listen(url string) func(ctx context.Context, channel string, heard func()) error {
	const patience = 5 * time.Second
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "NOTIFY "+channel); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if _, err := conn.WaitForNotification(soon); err != nil {
			return err
		}
		for {
			heard()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}
