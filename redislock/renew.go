package redislock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
	"github.com/redis/go-redis/v9"
)

// maxRenewals is how many claims one script renews. The server does nothing else
// meanwhile: some 200 take it a millisecond.
const maxRenewals = 200

const renewing = "renewing the claim on"

// Renew starts the leases of ts again, in one request for each 200 of them. In a Cluster
// each has a request of its own, unless the Prefix has a hash tag. Renew works when the
// server is out of memory.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	r := renewal{b, ts, make([]error, len(ts))}
	if err := b.ready(ctx); err != nil {
		for i := range r.errs {
			r.errs[i] = err
		}
		return r.errs
	}
	all := make([]int, len(ts))
	for i := range all {
		all[i] = i
	}
	r.run(ctx, all, r.groupSize())
	return r.errs
}

// renewal is one call of Renew. Its groups hold indexes of tickets; one script renews
// a group.
type renewal struct {
	b       *Backend
	tickets []driver.Ticket
	errs    []error
}

// run sends a script for each group of tickets, and waits for all of them.
func (r *renewal) run(ctx context.Context, which []int, size int) {
	groups := slices.Collect(slices.Chunk(which, size))
	cmds := make([]*transport.Command, len(groups))
	for i, group := range groups {
		cmds[i] = r.command(group)
		r.b.transport.Start(ctx, cmds[i])
	}
	var split []int
	for i, group := range groups {
		got := r.b.transport.Wait(ctx, cmds[i])
		if len(group) > 1 && isSplit(got.Err) {
			split = append(split, group...)
		} else {
			r.note(ctx, group, got)
		}
	}
	if len(split) > 0 {
		r.run(ctx, split, 1)
	}
}

// isSplit reports whether nothing was applied since not all locks of a group are on one
// node: their hash slot is moving, or the client is for one server of a Cluster.
func isSplit(err error) bool {
	return transport.IsSlotMoving(err) || err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT")
}

func (r *renewal) command(group []int) *transport.Command {
	keys, argv := make([]any, 0, 3*len(group)), make([]any, 0, 2*len(group))
	for _, n := range group {
		t := &r.tickets[n]
		keys = append(keys, r.b.keys(t.Key)...)
		argv = append(argv, prefixed(t.ID), encodeLease(clampTTL(t.TTL)))
	}
	cmd := transport.NewCommand(renewScript, keys, argv...)
	cmd.Durable = true
	cmd.FirstKeyAlone = len(group) == 1
	return cmd
}

// note reads the answer to one group. An err beside an answer says that too few
// replicas know of it: a lease that is longer on the master alone is not longer.
func (r *renewal) note(ctx context.Context, group []int, got transport.Result) {
	answer, err := got.Answer, got.Err
	parts, _ := answer.([]any)
	rep := reply{parts: parts}
	flags := ""
	if len(parts) > 0 {
		flags = rep.text()
	}
	for i, n := range group {
		key := r.tickets[n].Key
		switch {
		case answer == nil && err != nil:
			r.errs[n] = failed(ctx, renewing, key, err)
		case i >= len(flags):
			r.errs[n] = badAnswer(renewing, key, answer)
		case flags[i] == '+' && err != nil:
			r.errs[n] = failed(ctx, renewing, key, err)
		case flags[i] == '+':
		case flags[i] == 'x':
			r.errs[n] = parseGone(rep.text())
		default:
			r.errs[n] = failed(ctx, renewing, key, errors.New(rep.text()))
		}
	}
}

// groupSize is how many tickets one script may renew. In a Cluster two locks hardly ever
// share a hash slot, unless the Prefix has a hash tag.
func (r *renewal) groupSize() int {
	_, one := r.b.rdb.(*redis.Client)
	_, tag, _ := strings.Cut(r.b.prefix, "{")
	if r.b.noPipeline || !one && !strings.Contains(tag, "}") {
		return 1
	}
	return maxRenewals
}
