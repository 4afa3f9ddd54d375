//go:build race

package bubble_test

const raceEnabled = true
