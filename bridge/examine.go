package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver/health"
)

var _ health.Examiner = (*Backend)(nil)

// Examine has both stores read what their settings mean for locks of ttl. A finding names its store. Locks wait for the
// slower of two failovers.
func (b *Backend) Examine(ctx context.Context, ttl time.Duration) (health.Result, error) {
	if err := b.ready(ctx); err != nil {
		return health.Result{}, err
	}
	all := health.Result{}
	var errs []error
	for _, s := range []store{b.old, b.new} {
		examiner, ok := s.Backend.(health.Examiner)
		if !ok {
			continue
		}
		r, err := examiner.Examine(ctx, ttl)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		for _, f := range r.Findings {
			f.Server = strings.TrimSuffix(s.name+", "+f.Server, ", ")
			all.Add(f)
		}
		all.Failover = max(all.Failover, r.Failover)
		all.ServerTime = r.ServerTime && s == b.new // of which a line has the times
		all.Volatile = all.Volatile || r.Volatile
		all.Hosts = append(all.Hosts, r.Hosts...)
	}
	return all, errors.Join(errs...)
}
