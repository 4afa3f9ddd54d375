package fencelock

import "github.com/fencelock/fencelock/driver"

// Kind is how a claim shares its key.
type Kind int

// The kinds of a claim.
const (
	Exclusive Kind = iota // alone: Lock
	Shared                // with other readers: RLock
	Permits               // permits of a semaphore
)

// String returns "exclusive", "shared" or "permits".
func (k Kind) String() string {
	switch k {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "permits"
}

// kindOf returns the kind of a claim, and its permits if it has any.
func kindOf(capacity, weight int64) (k Kind, permits int64) {
	switch {
	case capacity != driver.RW:
		return Permits, weight
	case weight == driver.RW:
		return Exclusive, 0
	}
	return Shared, 0
}
