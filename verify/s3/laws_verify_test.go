//go:build verify

package s3

import (
	"testing"

	"github.com/fencelock/fencelock/drivertest"
)

// servers are started for one test each.
var servers = map[string]func(t *testing.T) string{"gofakes3": fakeS3, "versitygw": versityGW}

func TestLawsOnServers(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			drivertest.Run(t, views(url),
				drivertest.ExpiryLag(late), drivertest.Polls())
		})
	}
}

func TestAnswersAreThoseOfTheModelOnServers(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			drivertest.Model(t, views(start(t)), seeds(200)...)
		})
	}
}

// seeds are the same each time: what they find stays found.
func seeds(n int) []uint64 {
	fixed := make([]uint64, n)
	for i := range fixed {
		fixed[i] = uint64(i)
	}
	return fixed
}
