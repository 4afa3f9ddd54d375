package redislock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/reply"
)

// request is one run of a script for one lock.
type request struct {
	script  *script
	key     string // the Redis key of the lock, from which the script makes the others
	args    []any
	durable bool // replicas must confirm it, if Options ask for that

	answer any
	// err beside an answer says that too few replicas are known to have what was applied.
	err error
	// repeated says that the request may have been sent more than once.
	repeated bool

	ctx  context.Context // the caller's
	done chan struct{}   // closed when the answer is there
	left atomic.Bool     // the caller has gone: not to be sent if it has not been
}

// call is one call of a script, for one or more requests. It is sent again by exec, and never by
// go-redis: that does not say how often, and repeats what the server has refused.
type call struct {
	redis.Cmd
	requests []*request
	inFull   bool       // with the text of the script
	wait     *redis.Cmd // what WAIT answered behind it
	ask      string     // the address of the node of a Cluster that gets the hash slot, if it goes there
}

// NoRetry keeps go-redis from sending the call again.
func (c *call) NoRetry() bool { return true }

// text returns what the server has answered instead of a result, or "".
func (c *call) text() string { return reply.Text(c.Err()) }

// Arguments of most calls, which would be allocated for each otherwise.
var evalsha, eval, wholeLock any = "evalsha", "eval", int64(driver.RW)

// argsOfEach returns how many arguments each request sends. What is 0 or "" behind them for all is left out: an
// argument costs the server half a microsecond.
func (c *call) argsOfEach() int {
	n := 1
	for _, r := range c.requests {
		for i := len(r.args); i > n; i-- {
			if a := r.args[i-1]; a != int64(0) && a != "" {
				n = i
			}
		}
	}
	return min(n, len(c.requests[0].args))
}

// prepare makes the command that is sent.
func (c *call) prepare(ctx context.Context) {
	first := c.requests[0]
	verb, script := evalsha, first.script.sha
	if c.inFull {
		verb, script = eval, first.script.text
	}
	n := c.argsOfEach()
	args := append(make([]any, 0, 3+len(c.requests)*(1+n)), verb, script, len(c.requests))
	for _, r := range c.requests {
		args = append(args, r.key)
	}
	for _, r := range c.requests {
		args = append(args, r.args[:n]...)
	}
	c.Cmd = *redis.NewCmd(ctx, args...)
}

// failure returns the error of the call, or that of the connection behind it. Of replicas that are late WAIT says
// so itself.
func (c *call) failure() error {
	if err := c.Err(); err != nil || c.wait == nil {
		return err
	}
	return c.wait.Err()
}

// finish gives each request what came back for it. Then it is its caller's.
func (c *call) finish(confirmed error) {
	answer, err := c.Result()
	answers := []any{answer}
	if len(c.requests) > 1 && err == nil {
		if answers, _ = answer.([]any); len(answers) != len(c.requests) {
			err = fmt.Errorf("the server gave an answer that makes no sense: %.100q", fmt.Sprint(answer))
		}
	}
	for i, r := range slices.Backward(c.requests) { // Go runs the goroutine next that was woken last
		if r.err = err; err == nil {
			r.answer, r.err = lockAnswer(answers[i])
		}
		if r.err == nil && r.durable {
			r.err = confirmed
		}
		if r.done != nil {
			close(r.done)
		}
	}
}

// scriptError is why a script failed for one lock of many.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError makes it an error of the server.
func (scriptError) RedisError() {}

// lockAnswer returns the answer for one lock, or the error that is in its place.
func lockAnswer(answer any) (any, error) {
	if text, ok := answer.(string); ok && strings.HasPrefix(text, "e") {
		return nil, scriptError(text[1:])
	}
	return answer, nil
}

// join puts requests together that one call can carry: of one script, and with as many arguments. A Cluster refuses
// calls for locks in several hash slots, and while a slot moves those for several locks in it.
func (t *transport) join(requests []*request) (calls []*call) {
	type shape struct {
		script *script
		args   int
	}
	open := make(map[shape]*call)
	for _, r := range requests {
		s := shape{r.script, len(r.args)}
		c := open[s]
		if c == nil || len(c.requests) == r.script.maxLocks || t.apart.Load() {
			c = &call{}
			open[s] = c
			calls = append(calls, c)
		}
		c.requests = append(c.requests, r)
	}
	return calls
}
