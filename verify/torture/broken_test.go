//go:build unix

package torture

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// broken are locks that are wrong in one way each.
func broken() traffic.Table {
	sqlite := traffic.Schemes()["sqlite"]
	mutant := func(name string, change func(driver.Backend) driver.Backend) traffic.Service {
		s := sqlite
		s.Name = name
		s.Open = func(ctx context.Context, raw, _ string, ttl time.Duration) (traffic.Locks, error) {
			u, err := traffic.ParseURL(raw)
			if err != nil {
				return nil, err
			}
			opened, err := u.Open(ctx, storeurl.Config{})
			if err != nil {
				return nil, err
			}
			return traffic.OnBackend(change(opened.Backend), &fencelock.Options{TTL: ttl}, opened.Close), nil
		}
		return s
	}
	return traffic.Table{
		"short-lease":       mutant("short-lease", func(b driver.Backend) driver.Backend { return shortLease{b} }),
		"same-token":        mutant("same-token", func(b driver.Backend) driver.Backend { return sameToken{b} }),
		"unwoken":           mutant("unwoken", func(b driver.Backend) driver.Backend { return unwoken{b} }),
		"two-readers-write": mutant("two-readers-write", func(b driver.Backend) driver.Backend { return lightWriter{b} }),
	}
}

// shortLease tells the store a third of the lease that it tells the holder.
type shortLease struct{ driver.Backend }

func (s shortLease) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	whole := c.TTL
	c.TTL /= 3
	t, err := s.Backend.Enter(ctx, c)
	t.TTL, t.Left = whole, whole
	return t, err
}

func (s shortLease) Renew(ctx context.Context, ts []driver.Ticket) []error {
	cut := make([]driver.Ticket, len(ts))
	for i, t := range ts {
		t.TTL /= 3
		cut[i] = t
	}
	return s.Backend.Renew(ctx, cut)
}

// sameToken gives every grant the same token.
type sameToken struct{ driver.Backend }

func (s sameToken) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := s.Backend.Enter(ctx, c)
	t.Token = 7
	return t, err
}

func (s sameToken) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	t, err := s.Backend.Await(ctx, t)
	t.Token = 7
	return t, err
}

// unwoken never hears that it was granted.
type unwoken struct{ driver.Backend }

func (d unwoken) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	wait := time.NewTimer(500 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
		return t, nil
	case <-ctx.Done():
		return t, ctx.Err()
	}
}

// lightWriter makes a writer weigh as much as a reader.
type lightWriter struct{ driver.Backend }

func (l lightWriter) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	weight := c.Weight
	c.Weight = 1
	t, err := l.Backend.Enter(ctx, c)
	t.Weight = weight
	return t, err
}
