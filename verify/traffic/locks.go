package traffic

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// Locks is one view of a lock service, as one client of it has. Its methods may be called
// from many goroutines.
type Locks interface {
	// Take takes a lock. When ctx ends it gives up. Without a Lease the Outcome says why.
	Take(ctx context.Context, w Want) (Lease, Outcome, error)
	// Close gives everything back that can be given back.
	Close() error
}

// Want is a wish for a lock.
type Want struct {
	Key          string
	Kind         history.Kind
	Weight, Size int64 // of Permit
	Try          bool  // now or not at all
	Wait         time.Duration
}

// Outcome is what came of a wish without a lock.
type Outcome int

// The outcomes.
const (
	Got     Outcome = iota
	NotNow          // refused: nothing of the wish is left in the store
	Unknown         // given up, or nobody answered
	Strange         // an answer that should not be
)

// Lease is a lock that is held.
type Lease interface {
	// Token is the fencing token, 0 if there is none.
	Token() int64
	// Context ends when the lease does. A library that cannot tell returns a context that
	// does not end.
	Context() context.Context
	// Err is nil while the library says that the lock is held. A library that cannot tell
	// without asking returns nil: that is what its users go by.
	Err() error
	// Deadline is when the lease ends unless it is renewed; the zero time if the library does
	// not tell.
	Deadline() time.Time
	// Release gives it back. lost says that it had ended before.
	Release(ctx context.Context) (lost bool, err error)
}

// Extender is a lease that its holder can prolong.
type Extender interface {
	// Renew renews the lease by hand.
	Renew(ctx context.Context) error
	// Again takes another handle of the same grant.
	Again(ctx context.Context) (Lease, error)
}

// Admin sees and ends the claims of others.
type Admin interface {
	// Lines returns the keys that somebody holds or waits for.
	Lines(ctx context.Context) ([]string, error)
	// Head returns the span of tokens of the holder of key; 0 if there is none.
	Head(ctx context.Context, key string) (token, span int64, err error)
	// Break ends that claim, at once or after notice. It reports whether there was none, so that nothing has
	// changed.
	Break(ctx context.Context, key string, token int64, notice time.Duration) (none bool, err error)
}

// Traits say what a lock service is able to do and promises.
type Traits struct {
	Name string
	Ways []string // in which it can be used, of those that Ways returns
	Told bool     // a holder is told, or can see by itself, when its lease has ended
	Fair bool     // waiters stand in a line, and are granted without asking again
	// Wake is how soon a waiter asks again where a message was lost; 0 for no promise.
	Wake time.Duration
	// Lag is what the service adds to a lease before it lets the next one in, when a holder
	// is gone.
	Lag time.Duration
	// MinTTL is the shortest lease.
	MinTTL time.Duration
}

// Service is a kind of lock service.
type Service struct {
	Traits
	// Open opens one view of the service at url, whose leases last ttl. Connections go through
	// the proxy at via, if any, which is told the address that was meant.
	Open func(ctx context.Context, url, via string, ttl time.Duration) (Locks, error)
}

// Table names services. A worker finds there what its order names.
type Table map[string]Service
