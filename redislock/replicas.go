package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicas says how many replicas have to know of what lasts.
type replicas struct {
	known    int           // 0: none has to
	patience time.Duration // how long they may take
}

// confirmation is what WAIT answered behind a step.
type confirmation struct {
	mu    sync.Mutex
	by    int
	err   error
	final bool // what a late flight hears is of another copy of the step
}

// set notes what a flight has heard.
func (c *confirmation) set(by int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.final {
		c.by, c.err = by, err
	}
}

// enough reports whether a detour has heard of enough replicas, and keeps to that if so.
func (c *confirmation) enough(wait *redis.Cmd, majority int) bool {
	by, err := wait.Int()
	if err != nil || by < majority {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by, c.err, c.final = by, nil, true
	return true
}

// majority is how many replicas have to confirm.
func (r replicas) majority() int { return r.known/2 + 1 }

// confirm reports whether replicas have to confirm a step.
func (r replicas) confirm(st *step) bool { return r.known > 0 && st.lasts }

// judge returns an error if too few replicas have confirmed a step.
func (r replicas) judge(st *step) error {
	if !r.confirm(st) {
		return nil
	}
	st.held.mu.Lock()
	defer st.held.mu.Unlock()
	switch {
	case st.held.err != nil:
		return fmt.Errorf("the replicas could not be asked whether they know of it: %w", st.held.err)
	case st.held.by < r.majority():
		return fmt.Errorf("%d of %d replicas confirmed it in time, and %d must: check that they run and follow their master",
			st.held.by, r.known, r.majority())
	}
	return nil
}

// oneServerPerKey reports whether a client sends what concerns one key to one server,
// and says to which.
func oneServerPerKey(rdb redis.UniversalClient) bool {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

// execAndWait sends commands for one server, and behind them a WAIT, which counts the
// replicas that know of what this connection has written. That needs the client of
// the very node: a cluster client sends a WAIT anywhere.
func (s *sender) execAndWait(ctx context.Context, steps []*step, cmds []*redis.Cmd) {
	node, err := s.master(ctx, steps[0].record)
	if err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
		return
	}
	s.waitAt(ctx, node, false, steps, cmds)
}

// redirectAndWait sends once more what is elsewhere by now.
func (s *sender) redirectAndWait(ctx context.Context, steps []*step, cmds []*redis.Cmd) {
	for i, c := range cmds {
		ask, to := redirection(c.Err())
		if to == "" {
			continue
		}
		s.cluster.ReloadState(ctx)
		if node := s.nodeAt(ctx, to); node != nil {
			s.waitAt(ctx, node, ask, steps[i:i+1], cmds[i:i+1])
		}
	}
}

func (s *sender) waitAt(ctx context.Context, node *redis.Client, asking bool, steps []*step, cmds []*redis.Cmd) {
	pipe := node.Pipeline()
	for _, c := range cmds {
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
		_ = pipe.Process(ctx, c)
	}
	wait := s.replicas.wait(ctx, node)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // each command has its own error
	n, err := wait.Int()
	for _, st := range steps {
		st.held.set(n, err)
	}
}

// wait returns the command that asks a node how many of its replicas know of what was
// sent before it.
func (r replicas) wait(ctx context.Context, node *redis.Client) *redis.Cmd {
	return redis.NewCmd(ctx, "wait", r.majority(), r.limit(ctx, node).Milliseconds())
}

// limit is how long a WAIT may last: what comes later than the client listens for is
// not heard. To Redis zero is for ever.
func (r replicas) limit(ctx context.Context, node *redis.Client) time.Duration {
	d := r.patience
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/2)
	}
	if listens := node.Options().ReadTimeout; listens > 0 {
		d = min(d, listens/2)
	}
	return max(d, time.Millisecond)
}

// master returns the client of the server that has a record.
func (s *sender) master(ctx context.Context, record string) (*redis.Client, error) {
	if s.cluster != nil {
		node, err := s.cluster.MasterForKey(ctx, record)
		if err != nil {
			return nil, err
		}
		return s.instead(node), nil
	}
	if c, ok := s.rdb.(*redis.Client); ok {
		return c, nil
	}
	return nil, errors.New("no client for one server")
}

// redirection reads MOVED and ASK. Without one the address is empty.
func redirection(err error) (ask bool, addr string) {
	if err == nil {
		return false, ""
	}
	f := strings.Fields(err.Error())
	if len(f) != 3 || f[0] != "MOVED" && f[0] != "ASK" {
		return false, ""
	}
	return f[0] == "ASK", f[2]
}

// nodeAt returns the client of the master at an address, or nil.
func (s *sender) nodeAt(ctx context.Context, addr string) *redis.Client {
	var mu sync.Mutex
	var node *redis.Client
	_ = s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Options().Addr == addr {
			node = c
		}
		return nil
	})
	return node
}
