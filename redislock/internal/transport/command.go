package transport

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is one Lua script. No text of a user gets into it.
type Script struct {
	Name        string
	source, sha any // boxed once: one of both is sent with every command
}

// NewScript names a script.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

// Source returns the text of the script.
func (s *Script) Source() string { return s.source.(string) }

// SHA returns the name that EVALSHA has for the script.
func (s *Script) SHA() string { return s.sha.(string) }

// Command is one call of a script. It is made for one Do, or one Start and Wait.
type Command struct {
	// Durable says that replicas must confirm the command, if Options ask for that.
	Durable bool
	// FirstKeyAlone says that the script can do with its first key alone. A Cluster
	// refuses a script while some of its keys have moved to another node.
	FirstKeyAlone bool

	script    *Script
	route     string // the first key: it says which node the command goes to
	keyCount  int
	args      []any // of EVALSHA
	argsSpace [11]any
	cmd       redis.Cmd // as it is sent first
	first     attempt   // with it

	ctx       context.Context // the caller's
	abandoned atomic.Bool     // the caller has gone: not to be sent if it has not been
	done      chan struct{}   // has something in it once the result is there
	result    Result
	answered  bool // guarded by the mutex of the batch
}

// Result is what came of a command.
type Result struct {
	Answer any
	// Err beside an Answer says that too few replicas are known to have what was applied.
	Err error
	// Retried says that the command may have been sent more than once.
	Retried bool
}

// spare are commands for the next callers.
var spare = sync.Pool{New: func() any { return &Command{} }}

// Boxed once: they are part of every command.
var evalsha, eval any = "evalsha", "eval"

// NewCommand makes a call of s. The keys are strings; there is at least one. The command
// is not used any more once its result is there.
func NewCommand(s *Script, keys []any, argv ...any) *Command {
	c := spare.Get().(*Command)
	c.script, c.route, c.keyCount = s, keys[0].(string), len(keys)
	c.args = c.argsSpace[:0]
	if n := 3 + len(keys) + len(argv); n > len(c.argsSpace) {
		c.args = make([]any, 0, n)
	}
	c.args = append(c.args, evalsha, s.sha, len(keys))
	c.args = append(c.args, keys...)
	c.args = append(c.args, argv...)
	return c
}

// Script returns the script that the command calls.
func (c *Command) Script() *Script { return c.script }

// bySHA returns the command as it is sent first.
func (c *Command) bySHA(ctx context.Context) *redis.Cmd {
	c.cmd = *redis.NewCmd(ctx, c.args...)
	return &c.cmd
}

// inFull returns the command with the text of its script.
func (c *Command) inFull(ctx context.Context) *redis.Cmd {
	return redis.NewCmd(ctx, append([]any{eval, c.script.source}, c.args[2:]...)...)
}

// WithFirstKey returns the command with its first key alone, and the script's text.
func (c *Command) WithFirstKey(ctx context.Context) *redis.Cmd {
	return redis.NewCmd(ctx, append([]any{eval, c.script.source, 1, c.route}, c.args[3+c.keyCount:]...)...)
}

// finish hands the result to the caller.
func (c *Command) finish(answer any, err error, retried bool) {
	c.result = Result{answer, err, c.result.Retried || retried}
	c.answered = true
	c.done <- struct{}{}
}
