package storeurl

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Warning says which setting of the store endangers locks, or "" if none does as far as the
// store lets us see. It costs one round trip on Redis, none elsewhere.
func (s *Store) Warning(ctx context.Context) string {
	if s.warning == nil {
		return ""
	}
	return s.warning(ctx)
}

// evicts warns of a Redis that deletes keys when its memory is full.
func evicts(rdb redis.UniversalClient) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		info, err := rdb.Info(ctx, "memory").Result()
		if err != nil {
			return "" // the user may lack the right
		}
		limit, policy := infoField(info, "maxmemory"), infoField(info, "maxmemory_policy")
		if limit == "0" || policy == "noeviction" || policy == "" {
			return ""
		}
		return fmt.Sprintf("it deletes keys when its memory is full (maxmemory-policy %s), locks among them: "+
			"set maxmemory-policy noeviction", policy)
	}
}

// infoField returns a field of what INFO answers.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
