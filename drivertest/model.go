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
// backends that pass answer alike, for the model is one and the same. A backend that goes
// on in the background has a method Settle(context.Context) error, which waits for that.
//
// Without seeds it draws three. A failure prints its seed and what led to it.
func Model(t *testing.T, open Opener, seeds ...uint64) {
	t.Helper()
	playSeeds(t, open, false, seeds)
}

// ModelInBubbles is Model with leases that end: each sequence runs in a
// testing/synctest bubble, where time is virtual. It is for backends that live in
// the memory of the test.
func ModelInBubbles(t *testing.T, open Opener, seeds ...uint64) {
	t.Helper()
	playSeeds(t, open, true, seeds)
}

// playSeeds plays the seeds that are asked for, or three.
func playSeeds(t *testing.T, open Opener, bubbles bool, seeds []uint64) {
	t.Helper()
	if s := os.Getenv(SeedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q; want the whole number that a failed test has printed", SeedVariable, s)
		}
		seeds = []uint64{seed}
	}
	if len(seeds) == 0 {
		seeds = []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			play(t, bubbles, func(t *testing.T) {
				runModel(t, func() driver.Backend { return open(t) }, seed, bubbles)
			})
		})
	}
}

// play runs f, in a bubble or not.
func play(t *testing.T, bubbles bool, f func(t *testing.T)) {
	if bubbles {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}
