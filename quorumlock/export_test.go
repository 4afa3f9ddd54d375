package quorumlock

import "time"

// SetClock gives b another clock for its ballots.
func (b *Backend) SetClock(now func() time.Time) { b.now = now }
