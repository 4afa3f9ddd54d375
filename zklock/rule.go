package zklock

import (
	"cmp"
	"math"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// maxSpread is how far the numbers of one line may be apart to be believed. The server
// counts in 32 bits and goes from 2147483647 to -2147483648: a line that is never empty
// while two thousand million claims come and go.
const maxSpread = math.MaxInt32 / 2

// sortMembers sorts a line by arrival. It reports false if the numbers cannot tell.
func sortMembers(ms []member) bool {
	if len(ms) == 0 {
		return true
	}
	slices.SortFunc(ms, func(x, y member) int { return cmp.Compare(x.seq, y.seq) })
	return ms[len(ms)-1].seq-ms[0].seq <= maxSpread
}

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
