package zklock

import (
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// fits applies the rule of the line to the claim at index i: it is granted when its
// weight and the weights of all before it fit its capacity.
func fits(ms []member, i int) bool {
	sum := int64(0)
	for _, m := range ms[:i+1] {
		sum += m.weight
	}
	return sum <= ms[i].capacity
}

// blocker is the claim whose leaving may let in the claim at index i, by itself or after
// others; "" if the leaving of any claim may. An exclusive claim needs all before it to
// leave, and the one right before it cannot be granted and gone before those before that
// one. A reader needs the writers before it to leave, waiting ones too: its neighbour may
// be a reader that stays. On a semaphore anybody's leaving makes room.
func blocker(ms []member, i int) string {
	for j := i - 1; j >= 0 && !ms[i].semaphore(); j-- {
		if ms[i].weight == driver.RW || ms[j].weight == driver.RW {
			return ms[j].name
		}
	}
	return "" // also for a reader in a line whose semaphore claims are about to go
}

// sameKind reports whether all of ms are of the kind of c.
func sameKind(ms []member, c *driver.Claim) bool {
	return !slices.ContainsFunc(ms, func(m member) bool { return m.semaphore() != (c.Capacity != driver.RW) })
}
