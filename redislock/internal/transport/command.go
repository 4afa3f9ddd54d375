package transport

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// Script is one Lua script. No text of a user gets into it.
type Script struct {
	source, sha any // boxed once: one of both is sent with every call
	maxLocks    int
}

// NewScript makes a script. One call of it is for at most maxLocks locks.
func NewScript(source string, maxLocks int) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source: source, sha: hex.EncodeToString(sum[:]), maxLocks: maxLocks}
}

// Source returns the text of the script.
func (s *Script) Source() string { return s.source.(string) }

// SHA returns the name that EVALSHA has for the script.
func (s *Script) SHA() string { return s.sha.(string) }

// Command is what a script does for one lock. It is made for one Do, or one Start and Wait.
type Command struct {
	// Durable says that replicas must confirm the command, if Options ask for that.
	Durable bool

	script *Script
	keys   []any // the first says which node the command goes to
	argv   []any
	call   call // if it is the first of one

	ctx       context.Context // the caller's
	deadline  time.Time       // of ctx; zero if it has none
	abandoned atomic.Bool     // the caller has gone: not to be sent if it has not been
	done      chan struct{}   // has something in it once the result is there
	result    Result
}

// Result is what came of a command.
type Result struct {
	Answer any
	// Err beside an Answer says that too few replicas are known to have what was applied.
	Err error
	// Retried says that the command may have been sent more than once.
	Retried bool
}

// spare are commands for the next callers: without them a free lock costs 5 % more.
var spare = sync.Pool{New: func() any { return &Command{done: make(chan struct{}, 1)} }}

// NewCommand makes a command. The keys are strings; the script can do with the first alone.
// It is not used any more once its result is there.
func NewCommand(s *Script, keys []any, argv ...any) *Command {
	c := spare.Get().(*Command)
	c.script, c.keys, c.argv = s, keys, append(c.argv, argv...)
	return c
}

func (c *Command) route() string { return c.keys[0].(string) }

// finish hands the result to the caller.
func (c *Command) finish(answer any, err error, retried bool) {
	c.result = Result{answer, err, c.result.Retried || retried}
	c.done <- struct{}{}
}
