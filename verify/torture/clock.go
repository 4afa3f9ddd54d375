package torture

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/storeurl"
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
