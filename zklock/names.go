package zklock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/escape"
)

// What is kept where, below the Prefix:
//
//	/lines/KEY                      a container: it ends with the last node in it
//	/lines/KEY/cID.CAP.WEIGHT.SEQ   a claim: ephemeral, and numbered by the server
//	/lines/KEY/m                    what the last finished holder left, for ever
//	/sessions/SESSIONb              ephemeral: written to as the heartbeat
//	/sessions/SESSIONf              ephemeral: the fence (see session)
//	/broken/CZXID                   why an operator ended the claim with that czxid
const (
	linesDir    = "/lines"
	sessionsDir = "/sessions"
	brokenDir   = "/broken"
	markName    = "m"
)

// lineOf is the container of key.
func (b *Backend) lineOf(key string) string { return b.prefix + linesDir + "/" + letters.Escape(key) }

// recordOf is where the reason goes when an operator ends the claim.
func (b *Backend) recordOf(czxid int64) string {
	return b.prefix + brokenDir + "/" + strconv.FormatInt(czxid, 16)
}

// letters are what stands for itself in a name; all other bytes become =XX. (Dots would do but
// for the names . and .., and the separator of a claim's name.)
var letters = escape.NewTable('=', func(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
})

// nameOf is the name of a claim's node, up to the number that the server appends.
func nameOf(c *driver.Claim) string {
	return "c" + letters.Escape(c.ID) + "." + strconv.FormatInt(c.Capacity, 10) + "." + strconv.FormatInt(c.Weight, 10) + "."
}

// member is a claim in line, as its node's name tells.
type member struct {
	name             string
	id               string
	capacity, weight int64
	seq              int64
	czxid            int64 // 0 if nobody has asked for it
}

// parseMember reads the name of a claim's node.
func parseMember(name string) (member, bool) {
	rest, ok := strings.CutPrefix(name, "c")
	id, rest, ok1 := strings.Cut(rest, ".")
	capacity, rest, ok2 := strings.Cut(rest, ".")
	weight, seq, ok3 := strings.Cut(rest, ".")
	if !ok || !ok1 || !ok2 || !ok3 {
		return member{}, false
	}
	m := member{name: name}
	if m.id, ok = letters.Unescape(id); !ok {
		return member{}, false
	}
	var err1, err2, err3 error
	m.capacity, err1 = strconv.ParseInt(capacity, 10, 64)
	m.weight, err2 = strconv.ParseInt(weight, 10, 64)
	m.seq, err3 = strconv.ParseInt(seq, 10, 32)
	bad := err1 != nil || err2 != nil || err3 != nil || m.weight < 1 || m.weight > m.capacity || m.capacity > driver.RW
	return m, !bad
}

// semaphore reports which of the two kinds m is of.
func (m *member) semaphore() bool { return m.capacity != driver.RW }

// widest is how far the numbers of one line may be apart to be believed. The server
// counts in 32 bits and goes from 2147483647 to -2147483648: a line that is never
// empty while two thousand million claims come and go.
const widest = math.MaxInt32 / 2

// inOrder sorts a line by arrival. It reports false if the numbers cannot tell.
func inOrder(ms []member) bool {
	if len(ms) == 0 {
		return true
	}
	slices.SortFunc(ms, func(x, y member) int { return cmp.Compare(x.seq, y.seq) })
	return ms[len(ms)-1].seq-ms[0].seq <= widest
}

// The token of a claim is the transaction that made its node, and sixteen bits for
// the tokens of its span. A transaction is an epoch of 32 bits, one per leader, and
// a count of 32 bits: past epoch 2^15 there is no room left.
const (
	spanBits  = 16
	lastEpoch = 1<<15 - 1
)

var errEpoch = errors.New("the ensemble is past leader epoch 32767, so that tokens of 63 bits run out: " +
	"move the locks to a new ensemble, and reset what compares their tokens")

// tokenOf is the first token of the claim that transaction czxid made.
func tokenOf(czxid int64) (int64, error) {
	if czxid <= 0 || czxid>>32 > lastEpoch {
		return 0, &driver.PermanentError{Err: fmt.Errorf("zookeeper: %w (transaction %#x)", errEpoch, czxid)}
	}
	return czxid << spanBits, nil
}

// standing is where a claim stands in its line.
type standing struct {
	granted bool
	ahead   int
	mixed   bool
	before  int64 // Σ weight of those before it
}

// stand judges the claim at place i of a line.
func stand(ms []member, i int) standing {
	var s standing
	for j := range ms {
		s.mixed = s.mixed || ms[j].capacity != ms[i].capacity
		if j < i {
			s.before += ms[j].weight
		}
	}
	s.granted = s.before+ms[i].weight <= ms[i].capacity
	if !s.granted {
		s.ahead = i
	}
	return s
}

// mostBlockers is how many nodes one claim watches. In a semaphore any claim before
// it can let it in; beyond this many the look now and then must do.
const mostBlockers = 128

// blockers are the claims whose leaving may let in the claim at place i, and no
// others. An exclusive claim needs all before it to leave, and the one right before
// it cannot be granted and gone before those before that one. A reader needs the
// writers before it to leave, waiting ones too: its neighbour may be a reader that
// stays. On a semaphore anybody's leaving makes room.
func blockers(ms []member, i int) []string {
	switch {
	case i == 0:
		return nil
	case !ms[i].semaphore() && ms[i].weight == driver.RW:
		return []string{ms[i-1].name}
	case !ms[i].semaphore():
		for j := i - 1; j >= 0; j-- {
			if ms[j].weight == driver.RW {
				return []string{ms[j].name}
			}
		}
	}
	// Also for a reader in a line whose semaphore claims are about to go.
	var names []string
	for j := 0; j < i && len(names) < mostBlockers; j++ {
		names = append(names, ms[j].name)
	}
	return names
}

// checkPrefix says what is wrong with a Prefix, after ZooKeeper's rules.
func checkPrefix(p string) error {
	if !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") {
		return fmt.Errorf("zookeeper: the prefix %q must begin with / and not end with it", p)
	}
	for _, part := range strings.Split(p[1:], "/") {
		bad := strings.ContainsFunc(part, func(r rune) bool {
			return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
		})
		if part == "" || part == "." || part == ".." || bad || p == "/zookeeper" || strings.HasPrefix(p, "/zookeeper/") {
			return fmt.Errorf("zookeeper: the prefix %q is no path that ZooKeeper takes: leave out the part %q", p, part)
		}
	}
	return nil
}
