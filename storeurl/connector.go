package storeurl

import (
	"context"
	sqldriver "database/sql/driver"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lateFor is how long the opening of a connection goes on for others, after the call that asked for
// it has given up.
const lateFor = 5 * time.Second

// connector opens the connections of a pool. If a call gives up before its connection is open, the
// next one takes it over. Otherwise a server that has been away would open one connection after the
// other for callers who have left, and those who wait meanwhile would leave as well: PostgreSQL
// starts a process for each.
type connector struct {
	sqldriver.Connector

	ctx  context.Context // ends with the pool
	stop context.CancelFunc

	mu   sync.Mutex
	left []*opening // nobody waits for them; the first was begun first
}

// opening is a connection that is being opened, or is open.
type opening struct {
	cancel  context.CancelFunc
	late    *time.Timer // cancels it; nil until somebody has given up
	overdue atomic.Bool // late has cancelled it

	done chan struct{} // closed when conn and err are set
	conn sqldriver.Conn
	err  error
}

func newConnector(c sqldriver.Connector) *connector {
	ctx, stop := context.WithCancel(context.Background())
	return &connector{Connector: c, ctx: ctx, stop: stop}
}

// Connect opens a connection, or takes one over. If that one is cancelled because it is late for
// those who have left, Connect goes on with another.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	for {
		o := c.take()
		select {
		case <-o.done:
			if o.err != nil && o.overdue.Load() && ctx.Err() == nil && c.ctx.Err() == nil {
				continue
			}
			return o.conn, o.err
		case <-ctx.Done():
			c.leave(o)
			return nil, ctx.Err()
		}
	}
}

// take returns an opening that nobody waits for. Without one it begins another.
func (c *connector) take() *opening {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.left) > 0 {
		o := c.left[0]
		c.left = c.left[1:]
		if !o.failed() {
			return o
		}
	}
	ctx, cancel := context.WithCancel(c.ctx)
	o := &opening{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		o.conn, o.err = c.Connector.Connect(ctx)
		close(o.done)
	}()
	return o
}

func (o *opening) failed() bool {
	select {
	case <-o.done:
		return o.err != nil
	default:
		return false
	}
}

// leave lets others have o, for a while.
func (c *connector) leave(o *opening) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		go o.discard()
		return
	}
	c.left = append(c.left, o)
	if o.late == nil {
		o.late = time.AfterFunc(lateFor, func() { c.giveUp(o) })
	}
}

// giveUp cancels o, and closes it if nobody has taken it.
func (c *connector) giveUp(o *opening) {
	o.overdue.Store(true)
	o.cancel()
	c.mu.Lock()
	i := slices.Index(c.left, o)
	if i >= 0 {
		c.left = slices.Delete(c.left, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		o.discard()
	}
}

// discard cancels o, and closes it if it is open.
func (o *opening) discard() {
	o.cancel()
	if <-o.done; o.err == nil {
		_ = o.conn.Close()
	}
}

// Close ends what nobody waits for. The pool closes its connections itself.
func (c *connector) Close() error {
	c.stop()
	c.mu.Lock()
	left := c.left
	c.left = nil
	c.mu.Unlock()
	for _, o := range left {
		o.discard()
	}
	return nil
}
