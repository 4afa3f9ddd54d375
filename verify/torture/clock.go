package torture

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
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

// stepSQL moves rows. It may be the victim of a deadlock, and tries again then: what it
// had changed is undone.
func stepSQL(ctx context.Context, u *storeurl.URL, d time.Duration) error {
	db, err := u.SQL()
	if err != nil {
		return err
	}
	defer db.Close()
	us := fmt.Sprint(d.Microseconds())
	var steps []string
	switch u.Scheme {
	case "sqlite":
		steps = []string{"UPDATE fencelock_claim SET expires = expires - " + us + ", until = until - " + us}
	case "mysql", "postgres": // a lease in the text of a line, of who has not been renewed yet, stays as it is
		steps = []string{
			"UPDATE fencelock_swap SET expires = expires - " + us + ", open_until = open_until - " + us,
			"UPDATE fencelock_lease SET ending = ending - " + us + " WHERE ending < 9007199254740992",
		}
	}
	for try := 0; ; try++ {
		if err = together(ctx, db, steps); err == nil || try == 20 {
			return err
		}
		traffic.Sleep(ctx, 20*time.Millisecond)
	}
}

// together executes statements in one transaction.
func together(ctx context.Context, db *sql.DB, statements []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return tx.Commit()
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
