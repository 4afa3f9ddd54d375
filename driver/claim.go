package driver

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fencelock/fencelock/internal/limit"
)

// maxID is how many bytes a claim's ID may have; the core's IDs have 26.
const maxID = 256

// RW is the capacity of a read-write lock, and the weight of its writer.
// Semaphores are smaller.
const RW = 1 << 20

// Claim asks for a place in the line of Key.
type Claim struct {
	// Key names the lock: 1 to 1024 bytes, each of any value.
	Key string
	// ID is at least 128 random bits as text, drawn by the core for this claim alone. It
	// makes Enter repeatable, through the same Backend, and it is the only right to Leave.
	ID string
	// Named says that other processes know the ID, because the program has drawn it, or the claim
	// was detached: Enter, Await, Renew, Leave and Adopt may come through any Backend of the store,
	// and the claim outlives the process that entered it until its lease ends. Only a Detacher is
	// asked for such claims, and one Backend for no two claims with one ID at a time.
	Named bool
	// NoWait asks for a grant now or not at all.
	NoWait bool
	// Owner and Note are text shown to people, and Trace is text for other programs: UTF-8 without
	// zero bytes, at most 256, 1024 and 256 bytes.
	Owner, Note, Trace string
	// LockDelay is for how long Break keeps the key closed after this claim, if the Break has no
	// Delay of its own: 0, or Info.MinTTL to Info.MaxTTL. It is part of TTL already. Backends
	// without Info.Linger only show it.
	LockDelay time.Duration
	// Capacity and Weight decide the grant; 1 ≤ Weight ≤ Capacity ≤ RW.
	Capacity, Weight int64
	// TTL is the lease: how long the claim lives without being renewed.
	TTL time.Duration
	// WaitTTL is 0, or a shorter lease for as long as the claim waits: Enter starts this one for
	// a claim that it does not grant. A claim that it grants gets TTL, or WaitTTL where that is
	// simpler: its ticket says which, and the core renews it if that is too short.
	WaitTTL time.Duration
	// Span is how many tokens to reserve, 1 to 65535.
	Span int64
	// Ballot is 0, or the very token that this claim must get. Only a Member gets one.
	Ballot int64
	// After is 0, or a token of another store: this claim draws the lowest token above it and
	// above all tokens of its line, whatever the clock says. Only a backend with Info.After
	// gets one.
	After int64
}

// Validate refuses a claim that a backend with this Info cannot keep. Every backend calls
// it first in Enter. The error is an ErrPermanent that names the backend and the key. A
// MinTTL or MaxTTL of zero sets no limit.
func (c *Claim) Validate(info Info) error {
	if err := c.invalid(&info); err != nil {
		return Permanent(fmt.Errorf("%s: the claim on %.80q %w", info.Name, c.Key, err))
	}
	return nil
}

func (c *Claim) invalid(info *Info) error {
	err := cmp.Or(
		within("bytes of key", int64(len(c.Key)), 1, limit.Key),
		within("bytes of ID", int64(len(c.ID)), 1, maxID),
		within("bytes of owner", int64(len(c.Owner)), 0, limit.Owner),
		within("bytes of note", int64(len(c.Note)), 0, limit.Note),
		within("bytes of trace", int64(len(c.Trace)), 0, limit.Owner),
		within("tokens", c.Span, 1, limit.Span),
		within("of capacity", c.Capacity, 1, RW),
		within("of weight", c.Weight, 1, c.Capacity),
		c.invalidTTL(info),
	)
	switch {
	case err != nil:
		return err
	case c.Ballot < 0 || c.Ballot > math.MaxInt64-c.Span:
		return fmt.Errorf("has the ballot %d, which is no token", c.Ballot)
	case c.After < 0 || c.After >= math.MaxInt64-c.Span:
		return fmt.Errorf("is to follow %d, which is not a token", c.After)
	case c.After > 0 && !info.After:
		return errors.New("is to follow a token of another store, which this backend cannot do")
	case c.Capacity == RW && c.Weight != 1 && c.Weight != RW:
		return fmt.Errorf("has %d of weight; on a read-write lock want 1 or %d", c.Weight, RW)
	case c.Capacity < RW && !info.Fair:
		return errors.New("is one on a semaphore, which this backend cannot keep; use one store for it")
	}
	return nil
}

func (c *Claim) invalidTTL(info *Info) error {
	switch {
	case c.TTL <= 0 || c.TTL < info.MinTTL || info.MaxTTL > 0 && c.TTL > info.MaxTTL:
		return fmt.Errorf("has a lease of %v; want %v to %v", c.TTL, info.MinTTL, info.MaxTTL)
	case c.WaitTTL != 0 && (c.WaitTTL < max(info.MinTTL, 1) || c.WaitTTL > c.TTL):
		return fmt.Errorf("waits with a lease of %v; want %v to its %v", c.WaitTTL, info.MinTTL, c.TTL)
	case c.LockDelay != 0 && (c.LockDelay < max(info.MinTTL, 1) || info.MaxTTL > 0 && c.LockDelay > info.MaxTTL):
		return fmt.Errorf("has a lock-delay of %v; want %v to %v", c.LockDelay, info.MinTTL, info.MaxTTL)
	}
	return nil
}

func within(what string, n, low, high int64) error {
	if n >= low && n <= high {
		return nil
	}
	return outside(what, n, low, high) // apart, so that within is inlined
}

func outside(what string, n, low, high int64) error {
	return fmt.Errorf("has %d %s; want %d to %d", n, what, low, high)
}

// Ticket describes a claim in the line, as a backend returns it. It is not changed once
// it has been returned; each call returns a new one.
type Ticket struct {
	Claim // TTL is the lease as the backend grants it from now on: etcd rounds up, ZooKeeper clamps

	// Token is the first of Span tokens.
	Token int64
	// Granted reports whether the claim holds the lock.
	Granted bool
	// Left is how long the lease lasts. The core reads it after Enter only. The tickets that it passes
	// to other calls do not have it.
	Left time.Duration
	// Ahead counts the live claims before this one; 0 when granted. People read it: a backend may
	// estimate it for a long line.
	Ahead int
	// Mark is the mark of the line when this claim was granted; empty before.
	Mark string
	// Head describes the first claim of the line when this one is not granted;
	// nil where the backend has not looked.
	Head *BusyError
}

// Exit says how a claim leaves.
type Exit struct {
	// Mark replaces the line's mark, unless empty, or not above it. Backends store it unchanged, at most
	// 512 bytes of any value, and an empty mark means that there is none. Marks are compared byte by
	// byte, and the mark of a line never falls.
	Mark string
	// Linger keeps the place taken for that much longer.
	Linger time.Duration
	// Tombstone says that an Enter of the claim's ID may still arrive. For at least the
	// TTL of the ticket such an Enter returns GoneError.
	Tombstone bool
	// IfWaiting has Leave take the claim out only if it waits. If the claim is granted, Leave
	// returns ErrGranted and changes nothing. It is not combined with Mark or Linger.
	IfWaiting bool
}

// Break says how Backend.Break ends a claim.
type Break struct {
	// Reason is text for people, at most 1024 bytes. The holder gets it with its loss. It is not empty
	// with a Notice.
	Reason string
	// Delay has a granted claim linger for that long from now on, as after Leave with Exit.Linger. Zero
	// stands for the LockDelay of the claim, if it has one and the backend has Info.Linger. Below zero
	// the key opens at once. A waiting claim ends at once. A backend without Info.Linger returns
	// ErrPermanent if it is above zero.
	//
	// For a claim that lingers already, a Delay above zero may set a later end, never an earlier one.
	// Below zero ends the claim. Zero changes nothing, and Break returns nil: it may be a repeat.
	Delay time.Duration
	// Notice has a granted claim end after that long, whatever renews it, instead of now: it lives
	// until then, then ends as by a Break without Notice, and the Delay begins. Its holder may leave
	// before, which opens the key at once. Until the end, Renew of the claim and the Alarm tell the
	// holder by a GoneError with Left. A waiting claim ends at once. Notice is Info.MinTTL to
	// Info.MaxTTL, or a hundred years with Info.SharedLease: a session that ends takes the claim along.
	//
	// For a claim under notice, a Notice above zero may set a later end, never an earlier one. Zero
	// ends the claim now. Neither shortens the delay that was promised.
	Notice time.Duration
}

// Line is one line, as seen by people and by tests.
type Line struct {
	Key    string
	Last   int64 // the largest token drawn so far, 0 if none is remembered
	Mark   string
	Claims []Standing // live claims in order of arrival
}

// Standing is a claim as seen from outside. Of the Claim it has ID, Owner, Note, Trace, LockDelay,
// Capacity, Weight and Span. The LockDelay of a claim under notice is the delay that follows. The ID
// is cut to 8 characters: enough to tell claims apart, too little to leave with.
type Standing struct {
	Claim

	Token     int64
	Granted   bool
	Lingering bool      // its holder left or was broken, the place stays taken for Left
	Since     time.Time // granted since, or waiting since
	Left      time.Duration
	// Reason is that of the Break under whose notice the claim is: it ends after Left, whatever renews
	// it. Empty without a notice.
	Reason string
}
