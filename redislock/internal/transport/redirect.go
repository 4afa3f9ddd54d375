package transport

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// resend sends once more, in one request and in another form, the calls that were not applied
// because a node did not know their script, or did not have all of their keys. It returns
// all calls as they stand then.
func (t *Transport) resend(ctx context.Context, calls []*call) (all []*call) {
	var again []*call
	for _, c := range calls {
		if forms := t.rebuild(c); forms != nil {
			again = append(again, forms...)
		} else {
			all = append(all, c)
		}
	}
	again = slices.DeleteFunc(again, func(c *call) bool { return !c.again(ctx) })
	if len(again) == 0 {
		return all
	}
	if node, err := t.node(ctx, again[0].commands[0].route()); err == nil {
		t.exec(ctx, node, false, again)
		t.redirect(ctx, again)
	} else {
		for _, c := range again {
			c.cmd.SetErr(err)
		}
	}
	return append(all, again...)
}

// rebuild returns the calls that take the place of one that was not applied: with the text of
// the script, with one lock each, or with the first key alone. It returns nil for others.
func (t *Transport) rebuild(c *call) []*call {
	err := c.cmd.Err()
	switch {
	case unknownScript(err):
		c.inFull = true
		return []*call{c}
	case len(c.commands) > 1 && (IsSlotMoving(err) || isCrossSlot(err)):
		if isCrossSlot(err) {
			t.unmerged.Store(true)
		}
		var alone []*call
		for _, command := range c.commands {
			one := &call{commands: []*Command{command}, keys: c.keys, inFull: true}
			one.sent.repeated = c.sent.repeated
			alone = append(alone, one)
		}
		return alone
	case IsSlotMoving(err) && c.keys > 1:
		c.inFull, c.keys = true, 1
		return []*call{c}
	}
	return nil
}

// redirect sends once more, one by one, what a node of a Cluster says is elsewhere. A
// call that is alone also goes to another node if its own cannot take it.
//
// The ClusterClient does this only for a node that is not known: it repeats a command long
// after a failover has got an answer, and pauses while a hash slot is moving.
func (t *Transport) redirect(ctx context.Context, calls []*call) {
	if t.cluster == nil {
		return
	}
	for _, c := range calls {
		err := c.err()
		asking, addr := redirection(err)
		refused := len(calls) == 1 && isNodeGone(err) && !isSilence(err)
		if addr == "" && !refused || !c.again(ctx) {
			continue
		}
		if node := t.cluster.nodeAt(ctx, addr); node != nil {
			t.exec(ctx, node, asking, []*call{c})
		} else if !t.mustWait(c) { // WAIT needs the client of one node
			_ = c.process(ctx, t.cluster.client)
		}
	}
}

// redirection reads MOVED and ASK. Without one the address is empty.
func redirection(err error) (asking bool, addr string) {
	if err == nil {
		return false, ""
	}
	f := strings.Fields(err.Error())
	if len(f) != 3 || f[0] != "MOVED" && f[0] != "ASK" {
		return false, ""
	}
	return f[0] == "ASK", f[2]
}

// nodeAt returns the client of the master at an address, or nil if it is not known.
func (c *cluster) nodeAt(ctx context.Context, addr string) (node *redis.Client) {
	var mu sync.Mutex
	_ = c.client.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if n.Options().Addr == addr {
			node = n
		}
		return nil
	})
	return node
}
