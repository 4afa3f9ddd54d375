package swapsql

import (
	"context"

	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/swaplock"
)

// Backend is a swaplock.Backend in a database, with a history.
type Backend struct {
	*swaplock.Backend
	store *Store
}

var (
	_ record.Store     = (*Backend)(nil)
	_ swaplock.Arriver = (*Store)(nil)
)

// Open returns a Backend on s.
func Open(s *Store) *Backend { return &Backend{swaplock.New(s), s} }

// Record adds es to the histories of their keys.
func (b *Backend) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	return b.store.Record(ctx, es, keep)
}

// History returns what is known of the last n grants of key.
func (b *Backend) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	return b.store.History(ctx, key, n)
}
