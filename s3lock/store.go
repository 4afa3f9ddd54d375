package s3lock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapkv"
	"github.com/fencelock/fencelock/swaplock"
)

// DefaultPrefix is where locks are kept if Options do not say otherwise.
const DefaultPrefix = "fencelock/"

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix begins the names of all objects; DefaultPrefix if empty. All programs that share locks use
	// the same one.
	Prefix string
	// Poll is how often a waiter looks whether its line has changed, by one GET; 500 ms if 0.
	Poll time.Duration
	// Skew is how much the clocks of two servers behind one address may differ; 1 s if 0. The lock of a crashed
	// holder is free so much later.
	Skew time.Duration
}

// minTTL leaves time for the requests of a renewal.
const minTTL = 3 * time.Second

// Backend keeps lines of claims in a bucket. Its methods may be called from many goroutines at once.
type Backend struct {
	*swaplock.Backend
	invalid error
}

// New returns a backend that keeps its locks in the bucket of client. It sends no request: Open returns an error for
// bad Options.
func New(client Client, o *Options) *Backend {
	o = cmp.Or(o, &Options{})
	return open(client, o, time.Second+cmp.Or(o.Skew, time.Second)) // Last-Modified and Date count whole seconds
}

func open(client Client, o *Options, grace time.Duration) *Backend {
	b := &bucket{client: client, prefix: cmp.Or(o.Prefix, DefaultPrefix)}
	s := &store{swapkv.New(b), b.prefix, cmp.Or(o.Poll, 500*time.Millisecond)}
	s.Grace, s.Size = grace, busySize
	opened := &Backend{Backend: swaplock.New(s)}
	if client == nil || len(b.prefix) > 512 || o.Poll < 0 || o.Skew < 0 {
		opened.invalid = errors.New("s3: want a client, a prefix of 512 bytes at most, and no negative Poll or Skew")
	}
	return opened
}

// Open takes the backend over for one Client, and says whether the Options are bad.
func (b *Backend) Open() error { return b.Take(b.invalid) }

// store is the swaplock.Store of a Backend.
type store struct {
	swapkv.Store
	prefix string
	poll   time.Duration
}

// Traits say what the store is.
func (s *store) Traits() swaplock.Traits {
	return swaplock.Traits{Name: "s3", Namespace: s.prefix, MinTTL: minTTL, Grace: s.Grace}
}

// Forget does nothing: see Clean-up in the documentation of this package.
func (s *store) Forget(context.Context, int64) ([]string, error) { return nil, nil }

// Watch polls.
func (s *store) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(key string, news []swaplock.News),
) error {
	hear("", nil)
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		known := waiting()
		keys := slices.Collect(maps.Keys(known))
		_ = driverutil.Each(len(keys), atOnce, func(i int) error {
			if s.Changed(ctx, keys[i], known[keys[i]]) {
				hear(keys[i], nil)
			}
			return nil
		})
	}
}

// atOnce is how many keys are polled at once.
const atOnce = 16
