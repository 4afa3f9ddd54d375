package driver

import "time"

// Ticket is what a backend returns for a claim. It is not changed once it has
// been returned; each call answers with a new one.
type Ticket struct {
	Claim // TTL is the lease as the backend grants it from now on: etcd rounds up, ZooKeeper clamps

	// Token is the first of Span tokens.
	Token int64
	// Granted says whether the claim holds the lock.
	Granted bool
	// Left is how long the lease lasts, counted from the sending of the call
	// that returned this ticket. The core reads Left after Enter only. The tickets
	// that the core passes to other calls have neither Left nor Mixed.
	Left time.Duration
	// Ahead counts the live claims before this one; 0 when granted. People read
	// it: a backend may estimate it for a long line.
	Ahead int
	// Mark is the mark of the line when this claim was granted. It is set on
	// granted tickets only.
	Mark Mark
	// Head describes the first claim of the line when this one is not granted;
	// nil where the backend has not looked.
	Head *BusyError
	// Mixed says that a live claim of this line has another Capacity: two sizes
	// of one semaphore are in use.
	Mixed bool
}

// Exit says how a claim leaves.
type Exit struct {
	// Mark replaces the line's mark, unless empty.
	Mark Mark
	// Linger keeps the place taken for that much longer.
	Linger time.Duration
}
