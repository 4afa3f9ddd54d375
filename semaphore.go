package fencelock

import "context"

// Semaphore is a counter over all machines: at most Size permits are held at once.
// It is a value to call methods on, not an object in the store, and costs nothing
// to make. The first permit of a key that is taken sets its size: as long as one is held or
// waited for, another size is ErrKind, and the error names both.
type Semaphore struct {
	c    *Client
	key  string
	size int64
}

// Semaphore returns the semaphore of size permits that is named key; 1 ≤ size <
// 1048576. A bad size makes its methods return ErrInvalid.
func (c *Client) Semaphore(key string, size int64) *Semaphore {
	return &Semaphore{c, key, size}
}

// Acquire waits in line for n permits, 1 ≤ n ≤ size, and holds them as one lease. Claims
// are served in order of arrival: a large one is not overtaken by small ones. The permits
// of a holder that dies are free when its lease ends. Otherwise it is as Client.Lock; its
// token orders nothing.
func (s *Semaphore) Acquire(ctx context.Context, n int64, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, "acquire", n, false, opts)
}

// TryAcquire takes n permits if they are free now and no claim waits.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, "try acquire", n, true, opts)
}

func (s *Semaphore) acquire(ctx context.Context, op string, n int64, try bool, opts []Option) (*Lease, error) {
	return s.c.acquire(ctx, request{op: op, key: s.key, capacity: s.size, weight: n, permits: true, try: try}, opts)
}
