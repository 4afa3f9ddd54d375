package quorumlock

import "time"

// SetClock gives b another clock for its ballots.
func (b *Backend) SetClock(now func() time.Time) { b.now = now }

// Remembered is how many claims b remembers.
func (b *Backend) Remembered() int {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	return len(b.claims.byRef)
}
