//go:build verify

package quorumlock_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// runsVariable names the environment variable that asks for more runs, or fewer: a
// thousand take about twenty seconds of one processor.
const runsVariable = "FENCELOCK_SIM_RUNS"

func manyRuns() int {
	if n, err := strconv.Atoi(os.Getenv(runsVariable)); err == nil {
		return n
	}
	return 2000
}

// Runs by the thousand break no rule either.
func TestThousandsOfSimulatedRuns(t *testing.T) {
	t.Parallel()
	runs, processes := manyRuns(), runtime.GOMAXPROCS(0)
	for i := range processes {
		from, to := runs*i/processes, runs*(i+1)/processes
		t.Run(fmt.Sprintf("%d-%d", from, to), func(t *testing.T) {
			t.Parallel()
			t.Log(play(t, "TestSimulatedQuorumBreaksNoRule", fmt.Sprintf("%d-%d", from, to)))
		})
	}
}
