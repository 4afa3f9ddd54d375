// Package swapkv keeps the lines of package swaplock in a store of objects, each of which is read by its name, and
// written if it has a certain version still. It is what the buckets of NATS and of S3 have in common.
package swapkv

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Client sends requests to a store. Its methods may be called from many goroutines at once. What errors say of the
// outcome is as in swaplock.Store.
type Client interface {
	// LineName and LeaseName are the names of the objects of a line, and of one of its leases.
	LineName(key string) string
	LeaseName(key, lease string) string

	// Get returns the object with that name. If there is none, the Object has no Version.
	Get(ctx context.Context, name string) (Object, error)

	// Put writes an object if it has that version still, or if there is none and version is "". It returns the new
	// version, or "" if the condition does not hold. If the store says only that another request was under way, the
	// error is ErrConflict, or wraps it.
	Put(ctx context.Context, name, version string, value []byte) (string, error)

	// LineNames yields, in order, the names of lines, among them all those with claims whose keys begin with prefix.
	LineNames(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// ErrConflict says that nobody knows whether a Put has taken effect.
var ErrConflict = errors.New("another request was under way")

// Object is what a store has under a name.
type Object struct {
	Version  string
	Value    []byte
	Modified time.Time // when it was written, by the clock of the store
	Now      time.Time // of that clock, after the Get was sent; zero if the store does not say
}

// Mailbox is an optional part of a Client, for a store that lists in one request what there is beside a line. Clients
// may leave messages there: see swaplock.Messenger.
type Mailbox interface {
	// Beside says what there is beside the line with that name.
	Beside(ctx context.Context, line string) (Beside, error)

	// Remove removes an object. It does not wait for that, and need not succeed.
	Remove(name string)
}

// Beside is what there is beside a line.
type Beside struct {
	Leases   map[string]bool // by name: others were never renewed
	Messages []string        // by name; their versions are decimal numbers, and rise
	Now      time.Time       // of the clock of the store, after it was asked
}
