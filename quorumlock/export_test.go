package quorumlock

import "time"

// SetClock gives b another clock for its ballots.
func (b *Backend) SetClock(now func() time.Time) { b.now = now }

// Remembered is how many claims b remembers.
func (b *Backend) Remembered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claims)
}
