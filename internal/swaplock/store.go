package swaplock

import (
	"context"
	"iter"
	"time"
)

// Store has the methods that swaplock needs of a store. All methods may be called from many goroutines
// at once. Each is atomic, and none is repeated by the store unless it knows that the first
// try had no effect. An error means that the outcome is unknown, unless it is a
// *driver.RefusedError or a *driver.PermanentError.
//
// Times are those of the store's own clock. What a store cannot keep to the nanosecond it rounds up: a lease
// may end a moment late, and not early.
type Store interface {
	// Traits say what the store is. They never change.
	Traits() Traits

	// Read reads what the store has of key.
	Read(ctx context.Context, key string) (State, error)

	// Swap writes c if the key still has the version c.If, and, unless c.Ended is zero, the lease of
	// its holder still ends then. It reports false if it has changed nothing.
	Swap(ctx context.Context, key string, c *Change) (swapped bool, err error)

	// Renew has each lease end no earlier than its TTL from now: of the holder if the ID is the holder's,
	// else of the record. It leaves a lease that has ended, or is not there, alone, and reports
	// false for that.
	Renew(ctx context.Context, ls []Lease) (alive []bool, err error)

	// Lend makes a record of each lease, or has it end no earlier than its TTL from now.
	Lend(ctx context.Context, ls []Lease) error

	// Drop removes the records of ids, or those of them that have ended.
	Drop(ctx context.Context, key string, ids []string, ended bool) error

	// List yields the keys that begin with prefix and have a document, and what Read would return
	// of each. It stops after the first error that it yields.
	List(ctx context.Context, prefix string) iter.Seq2[Keyed, error]

	// Watch calls wake with the key and the Wake of each change, by any process, until ctx ends
	// or the connection fails. It calls wake with an empty key once when it has begun to hear.
	// A store that has no push asks for the keys that waiting returns now and then, and
	// wakes those whose version has changed, with no IDs, which wakes all who wait there.
	Watch(ctx context.Context, waiting func() []string, wake func(key string, ids []string)) error
}

// Traits are what the store is.
type Traits struct {
	Name      string // as in driver.Info
	Namespace string // as in driver.Info
}

// State is the data that a store has of one key.
type State struct {
	Version string    // of the key; it is never one that the key has had before; "" if there is nothing
	Now     time.Time // by the store's clock, after the Read was sent
	Content
	Records map[string]time.Time // when the records of the key end, by ID
}

// Content is the data that a swap writes.
type Content struct {
	Last     int64  // the largest token drawn
	Mark     string // any bytes
	MarkedBy string
	Holder   string    // whose lease is beside the document, or ""
	Expires  time.Time // of Holder
	Document []byte    // empty if nobody is in line and nobody is kept out
}

// Change is a swap.
type Change struct {
	If string // the version that the key has; "" if there is nothing
	// Content replaces what is there. If the Holder stays, its lease ends at the later of both times.
	Content
	Ended time.Time // see Swap
	Wake  []string  // whose Await has something to hear; IDs are cut as people may see them
}

// Lease names one lease.
type Lease struct {
	Key, ID string
	TTL     time.Duration
}

// Keyed is one key of a List.
type Keyed struct {
	Key string
	State
}
