package driver

import "context"

// Detacher is optional: a backend whose granted claims can pass from one process to
// another. The core tells the claims that it knows by a handle from the others with
// Ticket.Detached.
type Detacher interface {
	// Detach starts the lease of the granted claim of t again, with t.TTL, and makes the
	// claim last by itself: neither Close of this Backend nor the end of its process ends
	// it. It returns GoneError as Renew does. If the answer is lost, Renew of t keeps the
	// claim alive all the same, whether it was detached or not.
	//
	// Of a detached claim, Renew, Leave and Adopt take the ticket through every Backend of
	// the store, if Ticket.Detached is set.
	Detach(ctx context.Context, t Ticket) error

	// Adopt gives the detached claim of t the ID, the owner and the note of by, and starts
	// its lease again with by.TTL. Token, place and span stay. From then on the claim is
	// one of this Backend, as if it had entered here, and t.ID has a tombstone: for at
	// least by.TTL, Renew, Leave, Adopt and Enter of it return Adopted.
	//
	// It returns GoneError if no granted claim has the ID of t. A repeated Adopt with the
	// same by finds the claim. If the answer is lost, Leave of by with t.Token ends the claim,
	// if it was adopted.
	Adopt(ctx context.Context, t Ticket, by Claim) (Ticket, error)
}

// Adopted is the error for a handle whose claim another process has adopted.
var Adopted = GoneError{Reason: "another process has adopted it"}
