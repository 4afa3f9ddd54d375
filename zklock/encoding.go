package zklock

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/escape"
	"github.com/fencelock/fencelock/internal/limit"
)

// What is kept where, below the Prefix:
//
//	/lines/KEY                      a container: it ends with the last node in it
//	/lines/KEY/cID.CAP.WEIGHT.SEQ   a claim: ephemeral, and numbered by the server
//	/lines/KEY/m                    what the last finished holder left, forever
//	/sessions/SESSION.N             ephemeral: the session's barrier
//	/broken/CZXID                   why an operator ended the claim with that czxid, or that it is under notice
const (
	linesDir    = "/lines"
	sessionsDir = "/sessions"
	brokenDir   = "/broken"
	markName    = "m"
)

// lineOf is the container of key.
func (b *Backend) lineOf(key string) string { return b.prefix + linesDir + "/" + segment.Escape(key) }

// recordOf is where the reason goes when an operator ends the claim.
func (b *Backend) recordOf(czxid int64) string {
	return b.prefix + brokenDir + "/" + strconv.FormatInt(czxid, 16)
}

// segment writes a key or an ID as one segment of a path: letters, digits, - and _ as they
// are, all other bytes as =XX.
var segment = escape.NewTable('=', func(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
})

// nameOf is the name of a claim's node, up to the number that the server appends.
func nameOf(c *driver.Claim) string {
	return fmt.Sprintf("c%s.%d.%d.", segment.Escape(c.ID), c.Capacity, c.Weight)
}

// member is a claim in line, as its node's name tells.
type member struct {
	name             string
	id               string
	capacity, weight int64
	seq              int32
}

// parseMember reads the name of a claim's node.
func parseMember(name string) (member, bool) {
	rest, ok := strings.CutPrefix(name, "c")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 {
		return member{}, false
	}
	m := member{name: name}
	if m.id, ok = segment.Unescape(parts[0]); !ok {
		return member{}, false
	}
	var err1, err2 error
	m.capacity, err1 = strconv.ParseInt(parts[1], 10, 64)
	m.weight, err2 = strconv.ParseInt(parts[2], 10, 64)
	seq, err3 := strconv.ParseInt(parts[3], 10, 32)
	if errors.Join(err1, err2, err3) != nil {
		return member{}, false
	}
	m.seq = int32(seq)
	return m, m.weight >= 1 && m.weight <= m.capacity && m.capacity <= driver.RW
}

// semaphore reports which of the two kinds m is of.
func (m *member) semaphore() bool { return m.capacity != driver.RW }

// The token of a claim is the transaction that made its node, and sixteen bits for
// the tokens of its span. A transaction is an epoch of 32 bits, one per leader, and
// a count of 32 bits: past epoch 2^15 there is no room left.
const (
	spanBits  = 16
	lastEpoch = 1<<15 - 1
)

// tokenOf is the first token of the claim that transaction czxid made.
func tokenOf(czxid int64) (int64, error) {
	if czxid <= 0 || czxid>>32 > lastEpoch {
		return 0, driver.Permanent(fmt.Errorf("zookeeper: the ensemble is past leader epoch %d, "+
			"so that tokens of 63 bits run out (transaction %#x): move the locks to a new ensemble, "+
			"and reset what compares their tokens", lastEpoch, czxid))

	}
	return czxid << spanBits, nil
}

// checkPrefix says what is wrong with a Prefix, after ZooKeeper's rules.
func checkPrefix(p string) error {
	clean := len(p) > 1 && path.Clean("/"+p) == p && !strings.ContainsFunc(p, unicode.IsControl)
	if !clean || strings.HasPrefix(p+"/", "/zookeeper/") {
		return fmt.Errorf("zookeeper: the prefix %q is no path that ZooKeeper takes: it must begin with / and not end "+
			"with it; leave out the parts . and .. and empty ones, control characters, and /zookeeper", p)
	}
	return nil
}

// format is the version of everything that is written. A node of another version
// is refused, never guessed at.
const format = 1

// formatData is what a node holds that says nothing more.
var formatData = []byte{'0' + format}

// claimRecord is what a claim's node holds beside what its name says.
type claimRecord struct {
	Format    int                 `json:"v"`
	Owner     string              `json:"owner,omitempty"`
	Note      string              `json:"note,omitempty"`
	Trace     string              `json:"trace,omitempty"`
	LockDelay driverutil.Duration `json:"lock_delay,omitempty"`
	Span      int64               `json:"span"`
	TTL       int64               `json:"ttl"`            // ms, as granted
	AtOnce    bool                `json:"now,omitempty"`  // it was granted as it joined
	Held      int64               `json:"held,omitempty"` // otherwise: for how many ms it held when this was written
	Ends      int64               `json:"ends,omitempty"` // under notice: in ms since 1970 by the server's clock
	Reason    string              `json:"reason,omitempty"`
}

// markRecord is what the node m holds.
type markRecord struct {
	Format int    `json:"v"`
	ID     string `json:"id"` // of the claim that wrote it
	Mark   []byte `json:"mark"`
}

// brokenRecord is why a claim was ended.
type brokenRecord struct {
	Format int    `json:"v"`
	Reason string `json:"reason"`
}

func write(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func read[T claimRecord | markRecord | brokenRecord](node string, data []byte) (T, error) {
	var r T
	var v struct {
		Format int `json:"v"`
	}
	if json.Unmarshal(data, &v) != nil || v.Format != format || json.Unmarshal(data, &r) != nil {
		return r, otherVersion(node)
	}
	c, ok := any(r).(claimRecord)
	if ok && (c.Span < 1 || c.Span > limit.Span || c.TTL < 0 || c.TTL > math.MaxInt64/1_000_000) {
		return r, otherVersion(node)
	}
	return r, nil
}

func otherVersion(node string) error {
	return driver.Permanent(fmt.Errorf("zookeeper: the node %q is of another version of fencelock, or of "+
		"another program: use one version for all programs that share the prefix, and nothing else below it", node))

}
