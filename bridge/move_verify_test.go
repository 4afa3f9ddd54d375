//go:build verify

package bridge_test

func init() { seeds = 300 }
