//go:build race

package quorumlock_test

const raceEnabled = true
