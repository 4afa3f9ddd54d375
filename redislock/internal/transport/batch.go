package transport

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// batch is the commands that one request carries to one node.
//
// While the request is late, a failover may send its commands to another node. Once
// either has the answer to a command, the other does not send that command again: a
// Leave may have followed, and an Enter would bring back a claim that nobody knows.
// Each holds mu while it sends anything but the first request.
type batch struct {
	t        *Transport
	node     redis.UniversalClient
	attempts []*attempt
	mu       sync.Mutex
}

// attempt is a command as it is sent, and what came back.
type attempt struct {
	*Command
	cmd  *redis.Cmd
	wait *redis.Cmd // what WAIT answered behind cmd; nil if it was not asked
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
	b := &batch{t: t, attempts: make([]*attempt, len(commands))}
	for i, c := range commands {
		c.first = attempt{Command: c, cmd: c.bySHA(ctx)}
		b.attempts[i] = &c.first
	}
	var err error
	if b.node, err = t.node(ctx, commands[0].route); err != nil {
		b.fail(err)
		return
	}
	stop := t.cluster.watch(b)
	defer stop()

	began := time.Now()
	t.exec(ctx, b.node, false, b.attempts)
	t.direct.note(time.Since(began))
	t.cluster.heed(ctx, b.node, b.attempts)

	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.unanswered()
	t.redirect(ctx, open)
	t.resend(ctx, open) // a node that did not know a script
	t.resend(ctx, open) // may not have all of its keys
	t.cluster.heed(ctx, b.node, open)
	late := t.readTimeout > 0 && time.Since(began) >= t.readTimeout // go-redis has repeated it
	for _, a := range open {
		t.finish(a, late)
	}
}

// exec sends attempts to one node in one request.
func (t *Transport) exec(ctx context.Context, node redis.UniversalClient, asking bool, as []*attempt) {
	wait := t.waitFor(ctx, node, as)
	if len(as) == 1 && wait == nil && !asking {
		_ = node.Process(ctx, as[0].cmd) // the command has the error
		return
	}
	pipe := node.Pipeline()
	for _, a := range as {
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
		_ = pipe.Process(ctx, a.cmd)
		a.wait = wait
	}
	if wait != nil {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// unanswered returns the attempts that a failover has got no answer for. mu is held.
func (b *batch) unanswered() (open []*attempt) {
	for _, a := range b.attempts {
		if !a.answered {
			open = append(open, a)
		}
	}
	return open
}

// fail gives each command the same error.
func (b *batch) fail(err error) {
	for _, a := range b.attempts {
		a.finish(nil, err, false)
	}
}

// finish gives a command what came back for it. From here on it is its caller's.
func (t *Transport) finish(a *attempt, retried bool) {
	answer, err := a.cmd.Result()
	if err == nil && t.mustConfirm(a.Command) {
		err = t.replicas.confirmed(a.wait)
	}
	a.Command.finish(answer, err, retried)
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
		d, ok := c.ctx.Deadline()
		if !ok {
			return context.WithCancel(context.Background())
		}
		if d.After(end) {
			end = d
		}
	}
	return context.WithDeadline(context.Background(), end)
}
