// Package dbsession ends the sessions of other processes in a PostgreSQL, MariaDB or MySQL database.
package dbsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// End ends the sessions of name that run a statement, and returns when none is left. Idle sessions
// stay, and the one that asks.
//
// On PostgreSQL, name is the application_name of the sessions, a session in a transaction is ended
// too, and the role of db must be that of the sessions, or a member of pg_signal_backend and
// pg_read_all_stats. On MariaDB and MySQL, name is the user of the sessions, which may be that of
// db; any other user needs PROCESS and the right to KILL.
func End(ctx context.Context, db *sql.DB, name string) error {
	if name == "" {
		return errors.New("no name of the sessions to end: without one, those of other programs would be ended")
	}
	var version string
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return fmt.Errorf("ending the sessions of %q: %w", name, err)
	}
	end := endMySQL
	if strings.HasPrefix(version, "PostgreSQL") {
		end = endPostgres
	}
	for {
		sessions, err := end(ctx, db, name)
		switch {
		case err != nil:
			return fmt.Errorf("ending the sessions of %q: %w", name, err)
		case sessions == 0:
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of %q have not ended: %w", sessions, name, ctx.Err())
		}
	}
}

// endPostgres asks each busy session to end, and returns how many there are.
func endPostgres(ctx context.Context, db *sql.DB, application string) (sessions int, err error) {
	var asked int
	err = db.QueryRowContext(ctx, `SELECT count(*), count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid() AND state <> 'idle'`,
		application).Scan(&sessions, &asked)
	return sessions, err
}

// endMySQL is endPostgres on MariaDB and MySQL.
func endMySQL(ctx context.Context, db *sql.DB, user string) (sessions int, err error) {
	const busy = `SELECT ID FROM information_schema.PROCESSLIST
		WHERE USER = ? AND ID <> CONNECTION_ID() AND COMMAND <> 'Sleep'`
	ids, err := column(ctx, db, busy, user)
	for _, id := range ids {
		_, failed := db.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
		if failed == nil {
			continue
		}
		// It may have ended by itself.
		left, err := column(ctx, db, "SELECT ID FROM information_schema.PROCESSLIST WHERE ID = ?", id)
		if err != nil || len(left) > 0 {
			return len(ids), failed
		}
	}
	return len(ids), err
}

// column returns the numbers that a query selects.
func column(ctx context.Context, db *sql.DB, query string, arg any) (numbers []int64, err error) {
	rows, err := db.QueryContext(ctx, query, arg)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, rows.Err()
}
