package driver

import (
	"fmt"
	"math"
	"time"
)

// RW is the capacity of a read-write lock, and the weight of its writer.
// Semaphores are smaller.
const RW = 1 << 20

// Limits of a claim. The core checks them before it calls a backend, and Validate
// checks them again for programs that call a backend themselves.
const (
	MaxKey   = 1024  // bytes in a key; any byte may occur
	MaxID    = 256   // bytes in a claim's ID; the core's IDs have 26
	MaxOwner = 256   // bytes in an owner
	MaxNote  = 1024  // bytes in a note, and in the reason given to Break
	MaxMark  = 512   // bytes in a mark
	MaxSpan  = 65535 // tokens that one claim may reserve
)

// Mark is what the last finished holder left on a line, at most MaxMark bytes.
// Backends keep it as it is; the empty mark is no mark.
type Mark string

// Claim is a wish for a place in the line of Key.
type Claim struct {
	// Key names the lock: 1 to MaxKey bytes, each of any value.
	Key string
	// ID is 128 random bits as text, drawn by the core for this claim alone. It
	// makes Enter repeatable, through the same Backend, and it is the only right to Leave.
	ID string
	// Owner and Note are text shown to people: UTF-8 without zero bytes.
	Owner, Note string
	// Capacity and Weight decide the grant; 1 ≤ Weight ≤ Capacity ≤ RW.
	Capacity, Weight int64
	// TTL is the lease: how long the claim lives without being renewed.
	TTL time.Duration
	// NoWait asks for a grant now or not at all.
	NoWait bool
	// Span is how many tokens to reserve, 1 to MaxSpan.
	Span int64
	// Ballot is 0, or the very token that this claim must get. Only a backend
	// with Info.Ballot takes one.
	Ballot int64
}

// Exclusive reports whether c excludes every other claim of its line.
func (c *Claim) Exclusive() bool { return c.Capacity == RW && c.Weight == RW }

// ClaimRef names one claim: its key and its ID.
type ClaimRef struct{ Key, ID string }

// Ref returns the name of c.
func (c *Claim) Ref() ClaimRef { return ClaimRef{c.Key, c.ID} }

// Validate refuses a claim that a backend with this Info cannot keep. Every backend
// calls it first in Enter. The error is a *PermanentError that names the backend and
// the key. MinTTL and MaxTTL of zero are no limit.
func (c *Claim) Validate(info Info) error {
	if err := c.invalid(&info); err != nil {
		return &PermanentError{Err: fmt.Errorf("%s: %w", info.Name, err)}
	}
	return nil
}

func (c *Claim) invalid(info *Info) error {
	switch {
	case c.Key == "" || len(c.Key) > MaxKey:
		return fmt.Errorf("a key has 1 to %d bytes, not %d", MaxKey, len(c.Key))
	case c.ID == "" || len(c.ID) > MaxID:
		return fmt.Errorf("the claim on %q needs an ID of 1 to %d bytes, not %d", c.Key, MaxID, len(c.ID))
	case len(c.Owner) > MaxOwner || len(c.Note) > MaxNote:
		return fmt.Errorf("the claim on %q has an owner of %d bytes and a note of %d; at most %d and %d",
			c.Key, len(c.Owner), len(c.Note), MaxOwner, MaxNote)
	}
	if err := c.invalidNumbers(info); err != nil {
		return err
	}
	return c.invalidWeight(info)
}

func (c *Claim) invalidNumbers(info *Info) error {
	switch {
	case c.Span < 1 || c.Span > MaxSpan:
		return fmt.Errorf("the claim on %q reserves 1 to %d tokens, not %d", c.Key, MaxSpan, c.Span)
	case c.TTL <= 0 || c.TTL < info.MinTTL:
		return fmt.Errorf("the lease on %q lasts %v; want at least %v", c.Key, c.TTL, info.MinTTL)
	case info.MaxTTL > 0 && c.TTL > info.MaxTTL:
		return fmt.Errorf("the lease on %q lasts %v; want at most %v", c.Key, c.TTL, info.MaxTTL)
	case c.Ballot != 0 && !info.Ballot:
		return fmt.Errorf("the claim on %q has a ballot, and this backend is no member of a quorum", c.Key)
	case c.Ballot < 0 || c.Ballot > math.MaxInt64-c.Span:
		return fmt.Errorf("the ballot %d on %q is no token", c.Ballot, c.Key)
	}
	return nil
}

func (c *Claim) invalidWeight(info *Info) error {
	switch {
	case c.Capacity < 1 || c.Capacity > RW || c.Weight < 1 || c.Weight > c.Capacity:
		return fmt.Errorf("a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.Capacity == RW && c.Weight != 1 && c.Weight != RW:
		return fmt.Errorf("a claim on the read-write lock %q weighs 1 or %d, not %d", c.Key, RW, c.Weight)
	case c.Capacity < RW && !info.Semaphore:
		return fmt.Errorf("%q cannot be a semaphore on this backend; use one store for it", c.Key)
	}
	return nil
}

// ShortID cuts a claim's ID to what may be shown.
func ShortID(id string) string {
	if len(id) > 8 {
		return id[:8]
	}
	return id
}
