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

// standing is where a claim stands in its line.
type standing struct {
	granted bool
	ahead   int
	mixed   bool
}

// stand applies the rule of the line to the claim at index i: it is granted when its
// weight and the weights of all before it fit its capacity.
func stand(ms []member, i int) standing {
	var s standing
	sum := ms[i].weight
	for j := range ms {
		s.mixed = s.mixed || ms[j].capacity != ms[i].capacity
		if j < i {
			sum += ms[j].weight
		}
	}
	s.granted = sum <= ms[i].capacity
	if !s.granted {
		s.ahead = i
	}
	return s
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
