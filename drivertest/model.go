package drivertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver"
)

// SeedVariable names the environment variable that replays one random sequence:
// it holds the seed that a failed test has printed.
const SeedVariable = "FENCELOCK_SEED"

// Model plays random sequences of operations and compares each answer with a
// model of the laws. No lease ends meanwhile, so it runs against any store. All
// backends that pass answer alike, for the model is one and the same.
//
// Without seeds it draws three. A failure prints its seed and what led to it.
func Model(t *testing.T, open Opener, seeds ...uint64) {
	t.Helper()
	for _, seed := range chooseSeeds(t, seeds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			runModel(t, func() driver.Backend { return open(t) }, seed, false)
		})
	}
}

// ModelInBubbles is Model with leases that end: each sequence runs in a
// testing/synctest bubble, where time is virtual. It is for backends that live in
// the memory of the test.
func ModelInBubbles(t *testing.T, open Opener, seeds ...uint64) {
	t.Helper()
	for _, seed := range chooseSeeds(t, seeds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runModel(t, func() driver.Backend { return open(t) }, seed, true)
			})
		})
	}
}

// chooseSeeds chooses the seeds to play.
func chooseSeeds(t *testing.T, seeds []uint64) []uint64 {
	t.Helper()
	if s := os.Getenv(SeedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q; want the whole number that a failed test has printed", SeedVariable, s)
		}
		return []uint64{seed}
	}
	if len(seeds) == 0 {
		seeds = []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}
	}
	return seeds
}
