//go:build unix

package torture

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

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
		"no-owner":          setnx("SET NX, DEL", false),
		"owner":             setnx("SET NX, DEL of one's own", true),
		"short-lease":       mutant("short-lease", func(b driver.Backend) driver.Backend { return shortLease{b} }),
		"same-token":        mutant("same-token", func(b driver.Backend) driver.Backend { return sameToken{b} }),
		"unwoken":           mutant("unwoken", func(b driver.Backend) driver.Backend { return unwoken{b} }),
		"two-readers-write": mutant("two-readers-write", func(b driver.Backend) driver.Backend { return lightWriter{b} }),
	}
}

// setnx is the lock that tutorials teach, with a holder that looks at its own clock. A
// lock that is released deletes the key: always, or if it is its own.
func setnx(name string, owner bool) traffic.Service {
	return traffic.Service{
		Traits: traffic.Traits{Name: name, Ways: []string{"mutex", "set"}, Told: true, MinTTL: 100 * time.Millisecond},
		Open: func(_ context.Context, raw, _ string, ttl time.Duration) (traffic.Locks, error) {
			u, err := url.Parse(raw)
			if err != nil {
				return nil, err
			}
			return &nxLocks{redis.NewClient(&redis.Options{Addr: u.Host}), ttl, owner}, nil
		},
	}
}

type nxLocks struct {
	rdb   *redis.Client
	ttl   time.Duration
	owner bool
}

func (l *nxLocks) Close() error { return l.rdb.Close() }

func (l *nxLocks) Take(ctx context.Context, w traffic.Want) (traffic.Lease, traffic.Outcome, error) {
	if w.Wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, w.Wait)
		defer cancel()
	}
	id := fmt.Sprint(traffic.Now())
	for {
		sent := time.Now()
		ok, err := l.rdb.SetNX(ctx, w.Key, id, l.ttl).Result()
		switch {
		case err != nil:
			return nil, traffic.Unknown, err
		case ok:
			under, cancel := context.WithDeadline(context.Background(), sent.Add(l.ttl*9/10))
			return &nxLease{l, w.Key, id, under, cancel, sent.Add(l.ttl * 9 / 10)}, traffic.Got, nil
		case w.Try:
			return nil, traffic.NotNow, fmt.Errorf("it is taken")
		}
		again := time.NewTimer(5 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, traffic.Unknown, ctx.Err()
		}
	}
}

type nxLease struct {
	l       *nxLocks
	key, id string
	under   context.Context
	cancel  func()
	until   time.Time
}

func (x *nxLease) Token() int64             { return 0 }
func (x *nxLease) Context() context.Context { return x.under }
func (x *nxLease) Deadline() time.Time      { return x.until }

func (x *nxLease) Err() error {
	if time.Now().Before(x.until) {
		return nil
	}
	return context.DeadlineExceeded
}

// deleteOwn deletes a key if it holds the value.
var deleteOwn = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (x *nxLease) Release(context.Context) (lost bool, err error) {
	defer x.cancel()
	lost = x.Err() != nil
	if x.l.owner {
		n, err := deleteOwn.Run(context.Background(), x.l.rdb, []string{x.key}, x.id).Int()
		return lost || n == 0, err
	}
	return lost, x.l.rdb.Del(context.Background(), x.key).Err()
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
