package transport

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// call is one call of a script, for all of its commands. They have as many keys and arguments
// each. The script judges each by itself, and answers an array if there are several.
type call struct {
	commands []*Command
	keys     int        // of each command that are sent
	inFull   bool       // with the text of the script
	cmd      *request   // as it was sent last
	wait     *redis.Cmd // what WAIT answered behind cmd; nil if it was not asked
	answered bool       // guarded by the mutex of the batch

	// Most calls are for one lock: their parts are in one piece of memory.
	first [1]*Command
	args  [13]any
	sent  request
}

// Boxed once: they are part of every call.
var evalsha, eval any = "evalsha", "eval"

// newCall begins a call in the memory of its first command.
func newCall(first *Command) *call {
	c := &first.call
	*c = call{keys: len(first.keys), first: [1]*Command{first}}
	c.commands = c.first[:]
	return c
}

// prepare makes the command that is sent.
func (c *call) prepare(ctx context.Context) {
	first := c.commands[0]
	verb, script := evalsha, first.script.sha
	if c.inFull {
		verb, script = eval, first.script.source
	}
	args := slices.Grow(c.args[:0], 3+len(c.commands)*(c.keys+len(first.argv)))
	args = append(args, verb, script, len(c.commands)*c.keys)
	for _, command := range c.commands {
		args = append(args, command.keys[:c.keys]...)
	}
	for _, command := range c.commands {
		args = append(args, command.argv...)
	}
	c.sent.Cmd = *redis.NewCmd(ctx, args...)
	c.cmd = &c.sent
}

// err returns the error of the call, or of its first command if all have failed: a server
// that is out of memory refuses each.
func (c *call) err() error {
	answers, err := c.answers()
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if lockError(answer) == nil {
			return nil
		}
	}
	return lockError(answers[0])
}

// answers returns an answer for each command.
func (c *call) answers() ([]any, error) {
	answer, err := c.cmd.Result()
	if err != nil {
		return nil, err
	}
	if len(c.commands) == 1 {
		return []any{answer}, nil
	}
	answers, _ := answer.([]any)
	if len(answers) != len(c.commands) {
		return nil, fmt.Errorf("the server gave an answer that makes no sense: %.100q", fmt.Sprint(answer))
	}
	return answers, nil
}

// result returns the result of the i-th command.
func (t *Transport) result(c *call, i int) (answer any, err error) {
	answers, err := c.answers()
	if err != nil {
		return nil, err
	}
	if err := lockError(answers[i]); err != nil {
		return nil, err
	}
	if t.mustConfirm(c.commands[i]) {
		err = t.replicas.confirmed(c.wait)
	}
	return answers[i], err
}

// finish gives each command what came back for it. From here on it is its caller's, and with
// the first one the call itself.
func (t *Transport) finish(c *call, retried bool) {
	for i, command := range slices.Backward(c.commands) {
		answer, err := t.result(c, i)
		command.finish(answer, err, retried)
	}
}

// again prepares c to be sent once more, without the commands whose callers have gone. It
// reports whether there are others.
func (c *call) again(ctx context.Context) bool {
	c.commands = awaited(slices.Clone(c.commands))
	if len(c.commands) == 0 {
		return false
	}
	c.prepare(ctx)
	return true
}

// shape is what the commands of one call have in common.
type shape struct {
	script *Script
	args   int
	tag    string
}

// merge puts commands together that one call can carry. In a Cluster they have one hash tag.
func (t *Transport) merge(commands []*Command) (calls []*call) {
	open := make(map[shape]*call)
	for _, command := range commands {
		s := shape{script: command.script, args: len(command.argv)}
		if t.cluster != nil {
			s.tag = hashTag(command.route())
		}
		c := open[s]
		if c == nil || len(c.commands) == s.script.maxLocks || t.unmerged.Load() {
			c = newCall(command)
			open[s] = c
			calls = append(calls, c)
			continue
		}
		c.commands = append(c.commands, command)
	}
	return calls
}

// hashTag returns the part of a key that says which hash slot it is in.
func hashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}
