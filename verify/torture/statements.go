package torture

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// statementEnder returns what ends the statements of everybody else in the database at u,
// again and again for a duration, with a gap between two; nil where there are no statements
// that a server could end. On SQLite the workers interrupt their own: see traffic.Interrupt.
func statementEnder(u *storeurl.URL) func(ctx context.Context, d, gap time.Duration) error {
	if u.Scheme != "postgres" && u.Scheme != "mysql" {
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
	list, end := "SELECT GROUP_CONCAT(id) FROM information_schema.processlist "+
		"WHERE db = DATABASE() AND id <> CONNECTION_ID()", "KILL QUERY %s"
	if scheme == "postgres" {
		list, end = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity "+
			"WHERE datname = current_database() AND pid <> pg_backend_pid()", "SELECT pg_cancel_backend(%s)"
	}
	var ids sql.NullString // by commas, NULL if there are none
	if err := db.QueryRowContext(ctx, list).Scan(&ids); err != nil {
		return err
	}
	if !ids.Valid {
		traffic.Sleep(ctx, 10*time.Millisecond)
		return nil
	}
	for id := range strings.SplitSeq(ids.String, ",") {
		_, _ = db.ExecContext(ctx, fmt.Sprintf(end, id)) // the connection may have ended
		traffic.Sleep(ctx, gap)
	}
	return nil
}
