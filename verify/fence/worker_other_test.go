//go:build !unix

package fence_test

// worker: processes cannot be stopped here, so there is no holder that wakes up late.
func worker() bool { return false }
