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
// A Multi that fails with zk.ErrNoNode in its first response was refused. It needs
// no marks, and refuses a holder whose session has ended even if nobody has come
// after it. In exchange the lock and the data must be in the same ensemble, and it
// tells claims apart, not tokens: goroutines of one Client that hand a claim on to
// each other share it. Set HandOff to 1 in the Client's Options, or use a [Fence],
// where that matters.
//
// If the grant is over already the error matches [fence.ErrStale]. It costs two
// round trips; the condition can be used as often as you like.
func (b *Backend) Holding(ctx context.Context, key string, token fence.Token) (*zk.CheckVersionRequest, error) {
	if token <= 0 {
		return nil, fmt.Errorf("zookeeper: the holder of %q: %w: pass the token of its lease", key, fence.ErrNoToken)
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	node, err := b.holding(ctx, key, int64(token)>>spanBits)
	switch {
	case err != nil:
		return nil, failed(ctx, "looking for the holder of", key, err)
	case node == "":
		return nil, &fence.StaleError{Resource: key, Token: token}
	}
	return &zk.CheckVersionRequest{Path: node, Version: -1}, nil
}

// holding returns the node of the exclusive claim that transaction czxid made, or "".
// A node of that name is never made again: its id is drawn once.
func (b *Backend) holding(ctx context.Context, key string, czxid int64) (string, error) {
	s, err := b.session(ctx)
	if err != nil {
		return "", err
	}
	l, err := b.readLine(ctx, s, key)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, m := range l.members { // it is the first, unless one ahead is just being cleared away
		if m.capacity != driver.RW || m.weight != driver.RW {
			continue
		}
		node := b.lineOf(key) + "/" + m.name
		stat, err := s.exists(ctx, node)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return "", err
		}
		if stat.Czxid == czxid {
			return node, nil
		}
		if stat.Czxid > czxid {
			break
		}
	}
	return "", nil
}
