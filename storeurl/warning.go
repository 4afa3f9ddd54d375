package storeurl

import (
	"context"

	"github.com/fencelock/fencelock/driver/health"
)

// Warning says which setting of the store endangers locks, or "" if none does as far as the
// store lets us see. It costs one round trip on Redis, none elsewhere. Package doctor looks
// more closely.
func (s *Store) Warning(ctx context.Context) string {
	for _, one := range s.bridged {
		if text := one.Warning(ctx); text != "" {
			return text
		}
	}
	redis, ok := s.Backend.(interface {
		Eviction(ctx context.Context) (*health.Finding, error)
	})
	if !ok {
		return ""
	}
	f, err := redis.Eviction(ctx)
	if err != nil || f == nil {
		return ""
	}
	return f.String()
}
