package torture

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/storeurl"
)

// statementEnder returns what ends the statements of everybody else in the database at u,
// again and again for a duration, with a gap between two; nil where there are no statements
// that a server could end. On SQLite the workers interrupt their own: see traffic.Interrupt.
func statementEnder(u *storeurl.URL) func(ctx context.Context, d, gap time.Duration) error {
	switch u.Scheme {
	case "postgres", "mysql":
	default:
		return nil
	}
	return func(ctx context.Context, d, gap time.Duration) error {
		db, err := u.SQL()
		if err != nil {
			return err
		}
		defer db.Close()
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		ended := false
		for ctx.Err() == nil {
			switch err := endEach(ctx, u.Scheme, db, gap); {
			case err == nil:
				ended = true
			case !ended && ctx.Err() == nil:
				return err
			}
		}
		return nil
	}
}

// endEach ends one statement of each connection but its own.
func endEach(ctx context.Context, scheme string, db *sql.DB, gap time.Duration) error {
	list := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	end := "KILL QUERY %d"
	if scheme == "postgres" {
		list = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
		end = "SELECT pg_cancel_backend(%d)"
	}
	ids, err := numbers(ctx, db, list)
	if err != nil {
		return err
	}
	for _, id := range ids {
		_, _ = db.ExecContext(ctx, fmt.Sprintf(end, id)) // the connection may have ended
		pause(ctx, gap)
	}
	if len(ids) == 0 {
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// numbers reads a column of numbers.
func numbers(ctx context.Context, db *sql.DB, query string) (ns []int64, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		ns = append(ns, n)
	}
	return ns, rows.Err()
}
