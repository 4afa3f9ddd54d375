package driver

import "context"

// Alarm is optional: a backend that receives a message when a claim is broken.
// It calls f with the ID and the reason, from any goroutine; f does not block.
// The message is a hint that may be lost: the next Renew reports the same.
type Alarm interface {
	Alarm(f func(id string, gone GoneError)) (stop func())
}

// Reserver is optional: a backend that can lengthen the span of a granted claim that
// is alone in its line, in one request.
//
// Reserve makes the claim of t reserve span tokens from t.Token on. t.Span says how
// many the claim is known to have. Reserve reports false if it has done nothing: if
// another claim is in line, if t is not granted, if a needed token was drawn already,
// or for any reason of its own. It does not start the lease again and never shortens
// a span. After an error it may have happened, or may still happen.
type Reserver interface {
	Reserve(ctx context.Context, t Ticket, span int64) (done bool, err error)
}

// Detacher is optional: a backend whose granted claims can pass from one process to
// another.
type Detacher interface {
	// Detach starts the lease of the granted claim of t again, with t.TTL, and makes the claim last by
	// itself: neither Close of this Backend nor the end of its process ends it. From then on its
	// tickets have Named. It returns GoneError if the claim is gone, and nil under notice. If the answer
	// is lost, Renew of t keeps the claim alive all the same, whether it was detached or not.
	Detach(ctx context.Context, t Ticket) error

	// Adopt gives the detached claim of t the ID, the owner, the note, the trace and the lock-delay of
	// by, and starts its lease again with by.TTL. Token, place and span stay, and so does a notice. From
	// then on the claim is one of this Backend, as if it had entered here, and t.ID has a tombstone: for
	// at least by.TTL, Renew, Leave, Adopt and Enter of it return a GoneError with the Reason "another
	// process has adopted it".
	//
	// It returns GoneError if no granted claim has the ID of t. A repeated Adopt with the
	// same by finds the claim. If the answer is lost, Leave of by with t.Token ends the claim,
	// if it was adopted.
	Adopt(ctx context.Context, t Ticket, by Claim) (Ticket, error)
}
