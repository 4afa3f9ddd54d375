//go:build verify

package slot_test

func init() { every = 1 }
