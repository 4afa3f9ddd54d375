package fencelock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// storeInfo is what the store can do. Its methods say what calls may ask for there.
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

// leaseDelay is the LockDelay of the lease that has the token, and whether it lingers already.
func (i *storeInfo) leaseDelay(line *driver.Line, token fence.Token) (delay time.Duration, lingers bool) {
	for _, s := range lineOf(line).Holders {
		switch {
		case !s.HasToken(token):
		case s.Lingering:
			return 0, true
		case s.LockDelay > 0:
			return min(max(s.LockDelay, i.MinTTL), i.maxTTL()), false
		}
	}
	return 0, false
}

// breakDelay reads the options of Break: the LockDelay, as the backend can keep it, and whether
// there is one. A LockDelay of 0 is below zero then, because it also ends a delay.
func (i *storeInfo) breakDelay(opts []Option) (delay time.Duration, given bool, err error) {
	var o callOptions
	if err := o.readOptions(breakTakes, true, opts); err != nil {
		return 0, false, err
	}
	switch d := o.lockDelay; {
	case d == 0 && o.given != 0:
		return -1, true, nil
	case d == 0:
		return 0, false, nil
	case !i.Linger:
		return 0, false, invalid("the %s backend cannot keep a key closed after a break; leave out LockDelay",
			i.Name)
	case d > i.maxTTL():
		return 0, false, invalid("LockDelay is %v; the %s backend can do at most %v", d, i.Name, i.maxTTL())
	default:
		return max(d, i.MinTTL), true, nil
	}
}

// canOnce refuses a slot that cannot be noted.
func (i *storeInfo) canOnce(key string, slot time.Time) error {
	if !i.Fair {
		return wrap(opOnce, key, invalid("the %s backend cannot remember which slots are done", i.Name))
	}
	if y := slot.UTC().Year(); y < 0 || y > 9999 {
		return wrap(opOnce, key, invalid("the slot is in the year %d; it could be written, but not read again", y))
	}
	return nil
}
