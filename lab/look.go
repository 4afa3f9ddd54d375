package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// empties waits until the store holds nothing: a lease ends there later than at its holder.
func (s *stage) empties() {
	s.until("the store holds nothing", func() bool { return len(s.look()) == 0 })
}

// look shows what the servers hold.
func (s *stage) look() []Text {
	if s.holds != nil {
		return s.holds()
	}
	return s.each(s.content)
}

// each shows what each server holds, under its name if there are several.
func (s *stage) each(holds func(*node) []Text) (all []Text) {
	for _, n := range s.nodes {
		some := []Text{{"down", "宕机"}}
		if n.server.Pid() != 0 {
			some = holds(n)
		}
		if n.name == "" {
			return some
		}
		if len(some) == 0 {
			some = []Text{same("–")}
		}
		for _, t := range some {
			all = append(all, Text{n.name + ": " + t.EN, n.name + ": " + t.ZH})
		}
	}
	return all
}

// content shows every key of a server with its value and when it ends.
func (s *stage) content(n *node) (all []Text) {
	keys, err := n.rdb.Keys(s.ctx, "*").Result()
	s.check(err)
	slices.Sort(keys)
	for _, key := range keys {
		var value string
		switch kind := n.rdb.Type(s.ctx, key).Val(); kind {
		case "string":
			value = fmt.Sprintf("%q", n.rdb.Get(s.ctx, key).Val())
		case "list":
			value = fmt.Sprint(n.rdb.LRange(s.ctx, key, 0, -1).Val())
		case "hash":
			fields := fmt.Sprint(n.rdb.HGetAll(s.ctx, key).Val())
			value = "{" + strings.TrimSuffix(strings.TrimPrefix(fields, "map["), "]") + "}"
		default:
			value = kind
		}
		if left := n.rdb.PTTL(s.ctx, key).Val(); left > 0 {
			value += fmt.Sprintf(" (%ds)", (left+time.Second-1)/time.Second)
		}
		all = append(all, same(key+" = "+value))
	}
	return all
}

// lines shows the lines that fencelock keeps on a server.
func (s *stage) lines(n *node) []Text { return s.lineOf(redislock.New(n.rdb, nil)) }

// liner is a backend that describes lines.
type liner interface {
	Line(ctx context.Context, key string) (driver.Line, error)
}

// lineOf shows the lines that fencelock keeps in a store.
func (s *stage) lineOf(b liner) (all []Text) {
	for _, key := range s.keys {
		l, err := b.Line(s.ctx, key)
		s.check(err)
		for _, c := range l.Claims {
			all = append(all, standing(c))
		}
	}
	return all
}

// standing says what a claim has.
func standing(c driver.Standing) Text {
	switch {
	case !c.Granted:
		return Text{c.Owner + " waits in line", c.Owner + " 排队等待"}
	case c.Weight < c.Capacity:
		return Text{c.Owner + " reads", c.Owner + " 持有读锁"}
	}
	return Text{fmt.Sprintf("%s holds, token %d", c.Owner, c.Token), fmt.Sprintf("%s 持有, token %d", c.Owner, c.Token)}
}
