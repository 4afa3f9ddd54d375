package swaplock

import "time"

// Sleep lets b believe that the machine has slept.
func (b *Backend) Sleep(d time.Duration) { b.claims.clock.Skip(d) }
