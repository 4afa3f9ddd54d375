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

// maxNotice returns the longest notice. Where claims share a lease, a notice is kept apart from it.
func (i *storeInfo) maxNotice() time.Duration {
	if i.SharedLease {
		return longestTTL
	}
	return i.maxTTL()
}

// breakable returns how, the parameters of Break, as the backend can keep it.
func (i *storeInfo) breakable(how Break) (Break, error) {
	switch {
	case how.Notice < 0:
		return how, invalid("the notice is %v; it must not be negative", how.Notice)
	case how.Delay > 0 && !i.Linger:
		return how, invalid("the %s backend cannot keep a key closed after a break; leave out the delay", i.Name)
	case how.Delay > i.maxTTL():
		return how, invalid("the delay is %v; the %s backend can do at most %v", how.Delay, i.Name, i.maxTTL())
	case how.Notice > i.maxNotice():
		return how, invalid("the notice is %v; the %s backend can do at most %v", how.Notice, i.Name, i.maxNotice())
	}
	if how.Notice > 0 {
		how.Notice = max(how.Notice, i.MinTTL)
	}
	if how.Delay > 0 {
		how.Delay = max(how.Delay, i.MinTTL)
	}
	return how, nil
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
