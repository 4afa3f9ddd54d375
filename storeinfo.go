package fencelock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// storeInfo describes the store. Its methods say what calls may ask for there.
type storeInfo struct{ driver.Info }

// longestTTL keeps sums of times from overflowing where a backend has no limit.
const longestTTL = 100 * 365 * 24 * time.Hour

func (i *storeInfo) minTTL() time.Duration { return max(i.MinTTL, 10*minTTL) }

func (i *storeInfo) maxTTL() time.Duration {
	if i.MaxTTL <= 0 {
		return longestTTL
	}
	return i.MaxTTL
}

func (i *storeInfo) clampTTL(d time.Duration) time.Duration {
	return min(max(d, i.minTTL()), i.maxTTL())
}

// breakDelay returns the delay of Break as the backend can keep it.
func (i *storeInfo) breakDelay(d time.Duration) (time.Duration, error) {
	switch {
	case d <= 0:
		return d, nil
	case !i.Linger:
		return 0, invalid("the %s backend cannot keep a key closed after a break; leave out the delay", i.Name)
	case d > i.maxTTL():
		return 0, invalid("the delay is %v; the %s backend can do at most %v", d, i.Name, i.maxTTL())
	default:
		return max(d, i.MinTTL), nil
	}
}

// canOnce refuses a slot that cannot be noted.
func (i *storeInfo) canOnce(slot time.Time) error {
	if !i.Fair {
		return invalid("the %s backend cannot remember which slots are done", i.Name)
	}
	if y := slot.UTC().Year(); y < 0 || y > 9999 {
		return invalid("the slot is in the year %d; it could be written, but not read again", y)
	}
	return nil
}
