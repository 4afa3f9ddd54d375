package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/go-zookeeper/zk"
)

// Holding returns a condition for transactions of yours that is true as long as the
// exclusive grant with this token holds key, and false for ever afterwards:
//
//	still, err := backend.Holding(ctx, lease.Key(), lease.Token())
//	…
//	_, err = conn.Multi(still, &zk.SetDataRequest{Path: "/config", Data: text, Version: -1})
//
// A Multi that fails with zk.ErrNoNode in its first response was refused. The condition
// needs no marks, and refuses a holder whose session has ended even if nobody has come after
// it. The lock and the data must be in the same ensemble. Goroutines of one Client that hand
// a claim on to each other share it: set HandOff to 1 in the Client's Options, or use a
// [Fence], where that matters.
//
// If the grant is over already the error matches [fence.ErrStale]. It costs two round trips.
func (b *Backend) Holding(ctx context.Context, key string, token fence.Token) (*zk.CheckVersionRequest, error) {
	if token <= 0 {
		return nil, fmt.Errorf("zookeeper: the holder of %q: %w: pass the token of its lease", key, fence.ErrNoToken)
	}
	const doing = "looking for the holder of"
	return do(ctx, b, doing, key, func(_ context.Context, s *session) (*zk.CheckVersionRequest, error) {
		f, err := b.findToken(s, key, int64(token))
		if errors.Is(err, zk.ErrNoNode) || err == nil && (f.capacity != driver.RW || f.weight != driver.RW) {
			err = &fence.StaleError{Resource: key, Token: token}
		}
		if err != nil {
			return nil, err
		}
		// A node of that name is never made again: the claim's ID is drawn once.
		return &zk.CheckVersionRequest{Path: f.path, Version: -1}, nil
	})
}
