package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// client connects an actor of a scheme. What it sends is part of the step.
func (s *stage) client(n *node) *redis.Client {
	rdb := dial(n.rdb.Options().Addr)
	rdb.AddHook(recorder{s, n.name})
	s.closers = append(s.closers, rdb.Close)
	return rdb
}

// recorder adds what a client sends to the step.
type recorder struct {
	s    *stage
	node string
}

func (l recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (l recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hello" { // the client's own handshake
			return err
		}
		line := command(cmd, err)
		if l.node != "" {
			line = l.node + ": " + line
		}
		l.s.record(line)
		return err
	}
}

func (l recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// command shows a command and its reply as redis-cli would.
func command(cmd redis.Cmder, err error) string {
	var words []string
	args := cmd.Args()
	switch name := strings.ToUpper(fmt.Sprint(args[0])); name {
	case "EVAL":
		words = append(words, "EVAL", "…") // the script is in the text
		args = args[3:]
	default:
		words = append(words, name)
		args = args[1:]
	}
	for _, a := range args {
		word := fmt.Sprint(a)
		if slices.Contains([]string{"nx", "ex", "px"}, word) {
			word = strings.ToUpper(word)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ") + " → " + reply(cmd, err)
}

func reply(cmd redis.Cmder, err error) string {
	if errors.Is(err, redis.Nil) {
		return "nil"
	}
	if err != nil {
		return err.Error()
	}
	switch c := cmd.(type) {
	case *redis.StringCmd:
		return fmt.Sprintf("%q", c.Val())
	case *redis.StatusCmd:
		return c.Val()
	case *redis.IntCmd:
		return fmt.Sprint(c.Val())
	case *redis.BoolCmd: // EXPIRE and SET NX
		switch {
		case c.Name() == "set" && c.Val():
			return "OK"
		case c.Name() == "set":
			return "nil"
		case c.Val():
			return "1"
		}
		return "0"
	case *redis.Cmd:
		if text, ok := c.Val().(string); ok {
			return fmt.Sprintf("%q", text)
		}
		return fmt.Sprint(c.Val())
	}
	return "…"
}

// look shows what the servers hold.
func (s *stage) look() []Text {
	if s.holds != nil {
		return s.holds()
	}
	var all []Text
	for _, n := range s.nodes {
		if n.server.Pid() == 0 {
			all = append(all, Text{n.name + ": down", n.name + ": 宕机"})
			continue
		}
		lines := n.look(s)
		if len(lines) == 0 && n.name != "" {
			lines = []string{"–"}
		}
		for _, line := range lines {
			if n.name != "" {
				line = n.name + ": " + line
			}
			all = append(all, same(line))
		}
	}
	return all
}

// look shows every key of one server with its value and when it ends.
func (n *node) look(s *stage) []string {
	keys, err := n.rdb.Keys(s.ctx, "*").Result()
	s.check(err)
	slices.Sort(keys)
	var all []string
	for _, key := range keys {
		var value string
		switch kind := n.rdb.Type(s.ctx, key).Val(); kind {
		case "string":
			value = fmt.Sprintf("%q", n.rdb.Get(s.ctx, key).Val())
		case "list":
			value = "[" + strings.Join(n.rdb.LRange(s.ctx, key, 0, -1).Val(), " ") + "]"
		case "hash":
			fields := n.rdb.HGetAll(s.ctx, key).Val()
			var parts []string
			for f, v := range fields {
				parts = append(parts, f+":"+v)
			}
			slices.Sort(parts)
			value = "{" + strings.Join(parts, " ") + "}"
		default:
			value = kind
		}
		end := ""
		if left := n.rdb.PTTL(s.ctx, key).Val(); left > 0 {
			end = fmt.Sprintf(" (%ds)", (left+time.Second-1)/time.Second)
		}
		all = append(all, key+" = "+value+end)
	}
	return all
}
