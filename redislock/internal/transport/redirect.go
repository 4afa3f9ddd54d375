package transport

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// resend sends once more, in one request and in another form, the attempts that were not
// applied because a node did not know their script, or did not have all of their keys.
func (t *Transport) resend(ctx context.Context, as []*attempt) {
	var more []*attempt
	for _, a := range as {
		switch err := a.cmd.Err(); {
		case unknownScript(err):
			a.cmd = a.inFull(ctx)
		case IsSlotMoving(err) && a.FirstKeyAlone:
			a.cmd = a.WithFirstKey(ctx)
		default:
			continue
		}
		more = append(more, a)
	}
	if len(more) == 0 {
		return
	}
	node, err := t.node(ctx, more[0].route)
	if err != nil {
		for _, a := range more {
			a.cmd.SetErr(err)
		}
		return
	}
	t.exec(ctx, node, false, more)
	t.redirect(ctx, more)
}

// redirect sends once more, one by one, what a node of a Cluster says is elsewhere. A
// command that is alone also goes to another node if its own cannot take it.
//
// The ClusterClient does this only for a node that is not known: it repeats a command long
// after a failover has got an answer, and pauses while a hash slot is moving.
func (t *Transport) redirect(ctx context.Context, as []*attempt) {
	if t.cluster == nil {
		return
	}
	for _, a := range as {
		err := a.cmd.Err()
		asking, addr := redirection(err)
		refused := len(as) == 1 && isNodeGone(err) && !isSilence(err)
		if addr == "" && !refused || a.abandoned.Load() {
			continue
		}
		if node := t.cluster.nodeAt(ctx, addr); node != nil {
			t.exec(ctx, node, asking, []*attempt{a})
		} else if !t.mustConfirm(a.Command) { // WAIT needs the client of one node
			again := redis.NewCmd(ctx, a.cmd.Args()...)
			_ = t.cluster.client.Process(ctx, again)
			a.cmd = again
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
