//go:build verify

package s3lock_test

import (
	"testing"

	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestLimitsInVirtualTime(t *testing.T) {
	drivertest.Run(t, views(newBucket()), drivertest.InBubbles(), drivertest.ExpiryLag(late), drivertest.Topics("Limit"))
}

func TestAnswersAreThoseOfTheModelAlways(t *testing.T) { playModel(t, steps.Seeds(200)...) }
