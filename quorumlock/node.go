package quorumlock

import (
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver/ballot"
)

// node is one member, and how it responds.
type node struct {
	ballot.Member
	name     string
	since    time.Time    // of New
	underWay atomic.Int32 // requests to it: sent, waiting for their turn, or to be repeated
	heard    atomic.Int64 // nanoseconds after since: it responded, or underWay reached maxUnderWay
}

// A member that has not responded for silentAfter, with maxUnderWay requests under way to it all
// that time, is asked nothing more. Each of those requests may wait for callTimeout, and a
// Leave is repeated until its lease is over: at 1,000 locks a second there would be tens of
// thousands.
const (
	maxUnderWay = 256
	silentAfter = time.Second
)

func newNode(m ballot.Member, name string) *node {
	return &node{Member: m, name: name, since: time.Now()}
}

// silent reports whether n must not be asked now.
func (n *node) silent() bool {
	return n.underWay.Load() >= maxUnderWay && time.Since(n.since)-time.Duration(n.heard.Load()) > silentAfter
}

// begin notes a request to n.
func (n *node) begin() {
	if n.underWay.Add(1) == maxUnderWay {
		n.heard.Store(int64(time.Since(n.since)))
	}
}

// end notes that a request to n is over.
func (n *node) end() { n.underWay.Add(-1) }

// returned notes how a call to n ended.
func (n *node) returned(err error) {
	if err == nil || definite(err) {
		n.heard.Store(int64(time.Since(n.since)))
	}
}

// runFor calls f, which is a request to n, as run does.
func (b *Backend) runFor(n *node, f func()) {
	n.begin()
	b.run(func() {
		defer n.end()
		f()
	})
}
