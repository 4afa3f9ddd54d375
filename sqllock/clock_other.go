//go:build !linux

package sqllock

// sinceBoot says that this system has no clock that is common to all processes,
// goes on while the machine sleeps, cannot be set, and can be read without more
// dependencies. Leases are counted on the wall clock.
func sinceBoot() (int64, bool) { return 0, false }

func bootID() int64 { return 0 }
