package console

import (
	"testing"
	"time"
)

// A holder renews after a third of its lease. The colour changes when renewals must have failed.
func TestColourOfALeaseSaysThatRenewalsFailed(t *testing.T) {
	const full = 30 * time.Second
	for rest, want := range map[time.Duration]string{
		full: "good", 20 * time.Second: "good", 10 * time.Second: "good", 9 * time.Second: "late",
		3 * time.Second: "late", 2 * time.Second: "ends", 0: "ends", -time.Second: "ends",
	} {
		if got := leaseOf(rest, full).Level; got != want {
			t.Errorf("%v of %v are left: %s, want %s", rest, full, got, want)
		}
	}
}
