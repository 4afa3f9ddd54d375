package quorumlock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// ack is what one node answered to a Leave, a Break or an Await.
type ack struct {
	node int
	err  error
}

// ackCount counts acks. One goroutine uses it.
type ackCount struct {
	b         *Backend
	key       string
	answered  int
	acked     int
	gone      int
	permanent int
	why       driver.ErrGone
	others    []ack // neither nil nor gone
}

// waitForAcks returns when a majority has acknowledged, or can no longer. Acks must
// have room for every node, so that a late answer blocks nobody.
func (b *Backend) waitForAcks(ctx context.Context, key string, acks <-chan ack) error {
	c := ackCount{b: b, key: key}
	for {
		if err, decided := c.result(); decided {
			return err
		}
		select {
		case a := <-acks:
			c.add(a)
		case <-b.closing.Done():
			return driver.ErrClosed
		case <-ctx.Done():
			// The answers that have come count: the last may have come as ctx ended.
			for len(acks) > 0 {
				c.add(<-acks)
			}
			if err, decided := c.result(); decided {
				return err
			}
			return ctx.Err()
		}
	}
}

func (c *ackCount) add(a ack) {
	c.answered++
	switch {
	case a.err == nil:
		c.acked++
	case driver.Gone(a.err):
		c.gone++
		c.why = reasonGone(c.why, a.err)
	default:
		if permanent(a.err) {
			c.permanent++
		}
		c.others = append(c.others, a)
	}
}

// result returns the answer to the caller, once no further ack can change it.
func (c *ackCount) result() (err error, decided bool) {
	nodes, majority := len(c.b.nodes), c.b.majority
	switch {
	case c.acked >= majority:
		return nil, true
	case c.gone > nodes-majority:
		return c.why, true
	case c.permanent > nodes-majority:
		return &driver.PermanentError{Err: c.short()}, true
	case c.answered == nodes:
		return c.short(), true
	}
	return nil, false
}

func (c *ackCount) short() error {
	e := &shortError{key: c.key, have: c.acked, need: c.b.majority, of: len(c.b.nodes)}
	for _, a := range c.others {
		e.add(c.b.nodes[a.node].name, a.err)
	}
	return e
}
