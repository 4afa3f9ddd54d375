// Package pgsession ends the sessions of other processes in a PostgreSQL database.
package pgsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// busy lists the sessions of an application that run a statement or are in a transaction, this
// one aside, and asks each to end.
const busy = `SELECT count(*), count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid() AND state <> 'idle'`

// End ends the busy sessions with this application_name in the database of db, and returns when
// none is left. Idle sessions stay. The role of db must be that of the sessions, or a member of
// pg_signal_backend and pg_read_all_stats.
func End(ctx context.Context, db *sql.DB, application string) error {
	if application == "" {
		return errors.New("no application_name: without one, sessions of other programs would be ended")
	}
	for {
		var sessions, asked int
		if err := db.QueryRowContext(ctx, busy, application).Scan(&sessions, &asked); err != nil {
			return fmt.Errorf("ending the sessions of the application %q: %w", application, err)
		}
		if sessions == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of the application %q have not ended: %w", sessions, application, ctx.Err())
		}
	}
}
