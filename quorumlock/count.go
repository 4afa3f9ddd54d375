package quorumlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// collect adds answers until decided says that no further one matters. It returns why it
// gave up before: the error of ctx, driver.ErrClosed, or errTooLate when late is ready. A
// nil late is never ready.
// Answers must have room for every node, so that a late answer blocks nobody.
func collect[A any](
	ctx context.Context, b *Backend, answers <-chan A, add func(A), decided func() bool, late <-chan time.Time,
) (err error) {
	for err == nil && !decided() {
		select {
		case a := <-answers:
			add(a)
		case <-late:
			err = errTooLate
		case <-ctx.Done():
			err = ctx.Err()
		case <-b.closing.Done():
			err = driver.ErrClosed
		}
	}
	for err != nil && len(answers) > 0 {
		add(<-answers) // it came in time, and select took the other case
	}
	return err
}

// ack is what one node answered to a Leave, a Break or an Await.
type ack struct {
	node int
	err  error
}

// ask sends a request to all nodes and returns their acks.
func (b *Backend) ask(request func(i int, n *node) error) <-chan ack {
	acks := make(chan ack, len(b.nodes))
	for i, n := range b.nodes {
		if n.silent() {
			acks <- ack{i, errSilent}
			continue
		}
		b.runFor(n, func() {
			err := request(i, n)
			n.returned(err)
			acks <- ack{i, err}
		})
	}
	return acks
}

// waitForAcks returns when a majority has acknowledged, or can no longer.
func (b *Backend) waitForAcks(ctx context.Context, key string, acks <-chan ack) error {
	c := b.newCount(key)
	cut := collect(ctx, b, acks, func(a ack) { c.add(a.node, a.err) }, c.decided, nil)
	if cut != nil && !c.decided() {
		return cut
	}
	return c.result()
}

// count counts what the nodes answered for one claim. One goroutine uses it.
type count struct {
	b         *Backend
	key       string
	errs      []error // by node
	answered  int
	acked     int
	noticed   int // of acked, those where the claim is under notice
	gone      int
	permanent int
}

func (b *Backend) newCount(key string) *count {
	return &count{b: b, key: key, errs: slices.Repeat([]error{errNoAnswer}, len(b.nodes))}
}

func (c *count) add(node int, err error) {
	c.errs[node] = err
	c.answered++
	switch _, noticed := underNotice(err); {
	case noticed:
		c.acked++
		c.noticed++
	case err == nil:
		c.acked++
	case driver.Gone(err):
		c.gone++
	case permanent(err):
		c.permanent++
	}
}

// isAcked reports whether a majority has acknowledged.
func (c *count) isAcked() bool { return c.acked >= c.b.majority }

// isGone reports whether so many nodes have lost the claim that no majority has it.
func (c *count) isGone() bool { return c.gone > c.b.spare }

// decided reports whether no further answer can change the result. A notice has reached a majority and perhaps not
// yet the others: all are heard.
func (c *count) decided() bool {
	settled := c.isAcked() && c.noticed == 0 || c.isGone() && !c.disputed()
	return settled || c.permanent > c.b.spare || c.answered == len(c.b.nodes)
}

// breaks counts the nodes that know of each Break of the claim.
func (c *count) breaks() map[driver.GoneError]int {
	known := map[driver.GoneError]int{}
	for _, err := range c.errs {
		if g := reasonGone(driver.GoneError{}, err); g.Broken {
			known[g]++
		}
	}
	return known
}

// disputed reports whether nodes know of Breaks with different reasons. Then all are heard: the last Break has reached
// a majority of them.
func (c *count) disputed() bool { return len(c.breaks()) > 1 }

// result returns what the caller is told.
func (c *count) result() error {
	switch {
	case c.isAcked():
		return c.notice()
	case c.isGone():
		return c.why()
	case c.permanent > c.b.spare:
		return driver.Permanent(c.short())
	}
	return c.short()
}

// notice returns the notice under which the claim is, or nil. It is over when no majority has the claim any more: a
// shorter one that some nodes got does not end it. Of two operators the one whose Break more nodes know is named.
func (c *count) notice() error {
	var ends []driver.GoneError // of the nodes that have it longest, first
	known := map[string]int{}
	for _, err := range c.errs {
		if n, noticed := underNotice(err); noticed {
			ends = append(ends, n)
			known[n.Reason]++
		}
	}
	slices.SortFunc(ends, func(a, b driver.GoneError) int { return cmp.Compare(b.Left, a.Left) })
	i := c.b.majority - 1 - (c.acked - c.noticed) // where there is no notice, it does not end
	if i < 0 || i >= len(ends) {
		return nil
	}
	over := ends[i]
	for _, n := range ends {
		if known[n.Reason] > known[over.Reason] {
			over.Reason = n.Reason
		}
	}
	return over
}

// why returns the best reason for which the claim is gone: of two operators the one whose Break more nodes know.
func (c *count) why() (why driver.GoneError) {
	known := c.breaks()
	for _, err := range c.errs {
		g := reasonGone(driver.GoneError{}, err)
		if !why.Broken || known[g] > known[why] {
			why = reasonGone(why, g)
		}
	}
	return why
}

// short says what each node has answered so far.
func (c *count) short() error { return &shortError{c.b, c.key, c.acked, slices.Clone(c.errs)} }
