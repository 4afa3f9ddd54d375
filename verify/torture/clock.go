package torture

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// stepClock returns what makes the clock of the store at u step forward as its claims see
// it: every claim in it ends earlier by that much. It is nil where nobody can do that.
func stepClock(u *storeurl.URL) func(context.Context, time.Duration) error {
	switch u.Scheme {
	case "sqlite", "postgres", "mysql":
		return func(ctx context.Context, d time.Duration) error { return stepSQL(ctx, u, d) }
	case "redis", "redis+sentinel", "redis+cluster":
		return func(ctx context.Context, d time.Duration) error {
			rdb, err := u.Redis(ctx, storeurl.Config{})
			if err != nil {
				return err
			}
			defer rdb.Close()
			if c, ok := rdb.(*redis.ClusterClient); ok {
				return c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
					return stepRedis(ctx, one, d)
				})
			}
			return stepRedis(ctx, rdb, d)
		}
	case "redlock":
		return func(ctx context.Context, d time.Duration) error {
			for _, m := range u.Members {
				if err := stepClock(m)(ctx, d); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return nil
}

//go:embed step.lua
var stepScript string

// stepped takes time off the leases of one lock.
var stepped = redis.NewScript(stepScript)

func stepRedis(ctx context.Context, rdb redis.UniversalClient, d time.Duration) error {
	var keys []string
	all := rdb.Scan(ctx, 0, "fencelock:*}", 1000).Iterator()
	for all.Next(ctx) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		return err
	}
	for _, key := range keys {
		err := stepped.Run(ctx, rdb, []string{key}, d.Microseconds()).Err()
		if err != nil && !strings.HasPrefix(err.Error(), "WRONGTYPE") && !strings.HasPrefix(err.Error(), "MOVED") {
			return fmt.Errorf("stepping the clock of %s: %w", key, err)
		}
	}
	return nil
}

// stepSQL takes time off all leases: those next to a line, those of records, and those in the texts of a line and of
// its arrivals. It may be the victim of a deadlock, and tries again then: what it had changed is undone.
func stepSQL(ctx context.Context, u *storeurl.URL, d time.Duration) error {
	db, err := u.SQL()
	if err != nil {
		return err
	}
	defer db.Close()
	for try := 0; ; try++ {
		if err = stepRows(ctx, db, u.Scheme, d); err == nil || try == 20 {
			return err
		}
		traffic.Sleep(ctx, 20*time.Millisecond)
	}
}

// row is a line and its arrivals.
type row struct {
	key            []byte
	line, arrivals string
}

// stepRows steps the clock in one transaction. The version of each line rises: a swap that has read the line before
// would write the old ends of its leases again.
func stepRows(ctx context.Context, db *sql.DB, scheme string, d time.Duration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	us := d.Microseconds()
	// SQLite lets nobody write between the reading and the writing of a transaction that begins with a write.
	if _, err := tx.ExecContext(ctx, "DELETE FROM fencelock_lease WHERE 1 = 0"); err != nil {
		return err
	}
	// Free locks have no lease, and there are hundreds: their rows locked, nobody could lock anything for seconds.
	query, set := "SELECT lock_key, line, arrivals FROM fencelock_swap WHERE line <> '' OR arrivals <> '' "+
		"ORDER BY lock_key", "UPDATE fencelock_swap "+
		"SET line = $1, arrivals = $2, version = version + 1, expires = expires - $3, open_until = open_until - $4 "+
		"WHERE lock_key = $5"
	if scheme != "sqlite" {
		query += " FOR UPDATE"
	}
	if scheme != "postgres" {
		set = mark.ReplaceAllString(set, "?")
	}
	rows, err := rowsOf(ctx, tx, query)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if _, err := tx.ExecContext(ctx, set, stepText(r.line, d), stepText(r.arrivals, d), us, us, r.key); err != nil {
			return err
		}
	}
	// That of a claim that is bound to a transaction has no end.
	_, err = tx.ExecContext(ctx, "UPDATE fencelock_lease SET ending = ending - "+strconv.FormatInt(us, 10)+
		" WHERE ending < 9007199254740992")
	if err != nil {
		return err
	}
	return tx.Commit()
}

func rowsOf(ctx context.Context, tx *sql.Tx, query string) (all []row, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.key, &r.line, &r.arrivals); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// written are the times by which leases end: of a claim in a line, which tombstones have too, and when an arrival came.
// A quote within a string of JSON has a backslash before it.
var written = regexp.MustCompile(`"until":"[^"]+"|(?m:^\{"token":\d+,"at":\d+)`)

var mark = regexp.MustCompile(`\$\d`)

var lastNumber = regexp.MustCompile(`\d+$`)

// stepText takes d off those times.
func stepText(text string, d time.Duration) string {
	return written.ReplaceAllStringFunc(text, func(found string) string {
		if at := lastNumber.FindString(found); at != "" {
			us, _ := strconv.ParseInt(at, 10, 64)
			return found[:len(found)-len(at)] + strconv.FormatInt(us-d.Microseconds(), 10)
		}
		var until time.Time
		if err := until.UnmarshalJSON([]byte(found[len(`"until":`):])); err != nil {
			return found
		}
		text, _ := until.Add(-d).MarshalJSON()
		return `"until":` + string(text)
	})
}
