package httplock

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
)

// StateStore keeps Terraform's states, and beside each a record of who has locked it. Names
// are any bytes: an implementation must escape or hash them. Its methods may be called from
// many goroutines and processes at once.
//
// SetState and SetLock are conditional: in one step they compare the version of the record and
// write. That is what keeps a holder who has lost the lock from writing over the state of the
// next one. An object store with conditional writes can do it if the record names the object
// that the state is in.
type StateStore interface {
	// State returns the state of name, or ErrNoState.
	State(ctx context.Context, name string) ([]byte, error)

	// Lock returns the record of name and its version: the zero record and "" if there is none.
	Lock(ctx context.Context, name string) (StateLock, string, error)

	// SetLock replaces the record of name if it has this version, and gives it a new one. The
	// error is ErrStateChanged if it has another.
	SetLock(ctx context.Context, name string, l StateLock, version string) error

	// SetState replaces the state of name if its record has this version; nil deletes the
	// state. The error is ErrStateChanged if the record has another version.
	SetState(ctx context.Context, name string, state []byte, version string) error

	// Locked returns the names whose records have an ID.
	Locked(ctx context.Context) ([]string, error)
}

// StateLock is the record of who has locked a state. It is a secret: the Handle is in it.
type StateLock struct {
	ID        string           `json:"id,omitempty"`        // drawn by the client; "": not locked
	Info      json.RawMessage  `json:"info,omitempty"`      // what the client says of itself
	Principal string           `json:"principal,omitempty"` // the name in the tokens file
	Handle    fencelock.Handle `json:"handle,omitempty"`    // of the lease
	TTL       time.Duration    `json:"ttl_ns,omitempty"`    // 0: sticky
	Since     time.Time        `json:"since,omitzero"`

	// Ending says that the lock is being given back: its ID is good for nothing else any more.
	Ending bool `json:"ending,omitempty"`

	// LastID is the lock that was given back last, so that a repeated UNLOCK is one.
	LastID string `json:"last_id,omitempty"`
}

var (
	// ErrNoState is what StateStore.State returns for a name without a state.
	ErrNoState = errors.New("httplock: there is no state of this name")

	// ErrStateChanged says that another request has changed the record of a state meanwhile.
	ErrStateChanged = errors.New("httplock: the record of the state has changed meanwhile")
)
