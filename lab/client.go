package lab

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/history"
)

// client is an actor that locks as a scheme does: with functions that send commands.
type client struct {
	actor
	node    *node
	cutOff  bool   // it cannot reach its node
	between func() // where the schedule comes between two commands of a lock
}

// clients connects the actors to one server.
func (s *stage) clients() (a, b, c *client) {
	n := s.redis("")
	return s.client(n, "A"), s.client(n, "B"), s.client(n, "C")
}

func (s *stage) client(n *node, name string) *client {
	return &client{actor: actor{s, name}, node: n, between: func() {}}
}

// do sends a command, shows it as redis-cli would, and returns the reply.
func (c *client) do(args ...any) any {
	return c.send(words(args), args)
}

// eval runs a script, which is in the text.
func (c *client) eval(script string, keys []any, args ...any) any {
	args = append(keys, args...)
	return c.send("EVAL … "+words(args), append([]any{"EVAL", script, len(keys)}, args...))
}

func words(args []any) string { return strings.TrimSpace(fmt.Sprintln(args...)) }

func (c *client) send(shown string, args []any) any {
	if c.node.name != "" {
		shown = c.node.name + ": " + shown
	}
	if c.cutOff {
		c.record(shown + " → timeout")
		return nil
	}
	reply, err := c.node.rdb.Do(c.ctx, args...).Result()
	if !errors.Is(err, redis.Nil) {
		c.check(err)
	}
	answer := fmt.Sprint(reply)
	if text, ok := reply.(string); ok && text != "OK" {
		answer = strconv.Quote(text)
	} else if reply == nil {
		answer = "nil"
	}
	c.record(shown + " → " + answer)
	return reply
}

// ok reports whether the reply says that something was done.
func (c *client) ok(args ...any) bool {
	reply := c.do(args...)
	return reply == "OK" || reply == int64(1)
}

// text returns a reply that is text, or "".
func (c *client) text(args ...any) string {
	text, _ := c.do(args...).(string)
	return text
}

// seconds is the lease of a scheme as its commands write it.
const seconds = int(lease / 1e9)

// setNX is the command that most schemes begin with.
func (c *client) setNX(value string) bool {
	return c.ok("SET", "lock", value, "EX", seconds, "NX")
}

// locks lets an actor lock, and wants it to succeed.
func (c *client) locks(lock func(*client) bool, more ...func(*history.Event)) func() {
	return func() {
		c.event(history.Enter, more...)
		c.again(lock, more...)()
	}
}

// again is locks for one who is in already.
func (c *client) again(lock func(*client) bool, more ...func(*history.Event)) func() {
	return func() {
		c.answers(lock, true)()
		c.event(history.Believe, more...)
	}
}

// locksWithToken lets an actor lock, and wants this token.
func (c *client) locksWithToken(lock func(*client) int64, want int64) func() {
	return c.locks(func(c *client) bool {
		got := lock(c)
		c.want(got == want, "%s has the token %d", c.name, got)
		return true
	}, token(want))
}

// comes lets an actor try, and go on waiting if it is refused.
func (c *client) comes(lock func(*client) bool) func() {
	return func() {
		c.event(history.Enter)
		c.tries(lock)()
	}
}

// tries is comes for one who waits already.
func (c *client) tries(lock func(*client) bool) func() {
	return func() {
		if lock(c) {
			c.event(history.Believe)
		}
	}
}

// waits lets an actor try in vain, and go on waiting.
func (c *client) waits(lock func(*client) bool) func() {
	return func() {
		c.event(history.Enter)
		c.answers(lock, false)()
	}
}

// refused lets an actor try in vain, and give up.
func (c *client) refused(lock func(*client) bool) func() {
	return func() {
		c.waits(lock)()
		c.event(history.Refused)
	}
}

func (c *client) answers(lock func(*client) bool, want bool) func() {
	return func() {
		got := lock(c)
		c.want(got == want, "%s got the lock: %v", c.name, got)
	}
}

// unlocks lets an actor give the lock back.
func (c *client) unlocks(unlock func(*client)) func() {
	return func() {
		c.event(history.Release)
		unlock(c)
		c.event(history.Left)
	}
}

// writes lets the resource accept a write: it knows no tokens.
func (c *client) writes() {
	c.event(history.Write)
	c.record("write(" + c.name + ") → ok")
}
