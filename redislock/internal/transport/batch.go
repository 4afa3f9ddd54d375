package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// batch is the calls that one request carries to one node.
//
// While the request is late, a failover may send its calls to another node. Once
// either has the answer to a call, the other does not send that call again: a
// Leave may have followed, and an Enter would bring back a claim that nobody knows.
// Each holds mu while it sends anything but the first request.
type batch struct {
	t     *Transport
	node  redis.UniversalClient
	calls []*call
	mu    sync.Mutex
}

// send is the way of a batch: to the node that has its keys, and again as its answers
// ask for. It returns when each command has an answer.
func (t *Transport) send(commands []*Command) {
	commands = awaited(commands)
	if len(commands) == 0 {
		return
	}
	ctx, cancel := lastDeadline(commands)
	defer cancel()
	node, err := t.node(ctx, commands[0].route())
	if err != nil {
		for _, c := range commands {
			c.finish(nil, err, false)
		}
		return
	}
	b := &batch{t: t, node: node, calls: t.merge(commands)}
	for _, c := range b.calls {
		c.prepare(ctx)
	}
	stop := t.cluster.watch(b)
	defer stop()

	began := time.Now()
	t.exec(ctx, b.node, false, b.calls)
	t.direct.note(time.Since(began))
	t.cluster.heed(ctx, b.node, b.calls)

	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.unanswered()
	t.redirect(ctx, open)
	for range 3 { // a script that is not known, then keys that are not together, or not all there
		open = t.resend(ctx, open)
	}
	t.cluster.heed(ctx, b.node, open)
	for _, c := range open {
		t.finish(c, c.cmd.repeated)
	}
}

// sendOnce sends calls to one node in one request. It reports whether the connection broke.
func (t *Transport) sendOnce(
	ctx context.Context, node redis.UniversalClient, asking bool, calls []*call,
) (broke bool) {
	wait := t.waitFor(ctx, node, calls)
	if len(calls) == 1 && wait == nil && !asking {
		return isBroken(calls[0].process(ctx, node)) // the command has the error
	}
	pipe := node.Pipeline()
	for _, c := range calls {
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
		_ = pipe.Process(ctx, c.cmd)
		c.wait = wait
	}
	if wait != nil {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	sent := true
	for _, c := range calls {
		if err := c.cmd.Err(); isBroken(err) {
			broke, sent = true, sent && wasSent(err)
		}
	}
	broke = broke || wait != nil && isBroken(wait.Err())
	for _, c := range calls {
		c.cmd.repeated = c.cmd.repeated || broke && sent
	}
	return broke
}

// unanswered returns the calls that a failover has got no answer for. mu is held.
func (b *batch) unanswered() []*call {
	return slices.DeleteFunc(slices.Clone(b.calls), func(c *call) bool { return c.answered })
}

// awaited leaves out the commands whose callers have gone.
func awaited(commands []*Command) []*Command {
	return slices.DeleteFunc(commands, func(c *Command) bool { return c.abandoned.Load() })
}

// lastDeadline returns the context of a batch. It ends with the latest deadline of the
// commands, so that no caller cuts off another.
func lastDeadline(commands []*Command) (context.Context, context.CancelFunc) {
	if len(commands) == 1 {
		return commands[0].ctx, func() {}
	}
	var end time.Time
	for _, c := range commands {
		if c.deadline.IsZero() {
			return context.WithCancel(context.Background())
		}
		if c.deadline.After(end) {
			end = c.deadline
		}
	}
	return context.WithDeadline(context.Background(), end)
}
