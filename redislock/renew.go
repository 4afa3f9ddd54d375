package redislock

import (
	"context"
	"errors"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/redis/go-redis/v9"
)

// renewals is how many claims one script renews. The server does nothing else
// meanwhile: some 200 take it a millisecond.
const renewals = 200

const renewing = "renewing the claim on"

// Renew starts the leases of ts again, in one request for each 200 of them, or in
// a Cluster for each slot. It works when the server is out of memory.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := b.ready(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	all := make([]int, len(ts))
	for i := range all {
		all[i] = i
	}
	b.renew(ctx, ts, errs, b.groups(ts, all))
	return errs
}

// renewal is one script under way, and the tickets that it is for.
type renewal struct {
	tickets []int
	step    *step
}

// renew sends a script for each group, and waits for all of them.
func (b *Backend) renew(ctx context.Context, ts []driver.Ticket, errs []error, groups [][]int) {
	under := make([]renewal, len(groups))
	for i, g := range groups {
		locks, argv := make([]*names, len(g)), make([]any, 0, 2*len(g))
		for j, n := range g {
			locks[j] = b.names(ts[n].Key)
			argv = append(argv, tag(ts[n].ID), string(appendLease(nil, clampTTL(ts[n].TTL))))
		}
		under[i] = renewal{g, newStep(renewScript, locks, argv...)}
		under[i].step.lasts = true
		b.sender.send(ctx, under[i].step)
	}
	var apart, moves []int
	for _, r := range under {
		answer, err := b.sender.wait(ctx, r.step)
		if len(r.tickets) > 1 && slotMoves(err) {
			moves = append(moves, r.tickets...)
			continue
		}
		if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") && !b.apart.Load() {
			// A Cluster behind a client for one server. Nothing was applied.
			apart = append(apart, r.tickets...)
			continue
		}
		if err == nil {
			// A lease that is longer on the master alone is not longer.
			err = b.sender.replicas.judge(r.step)
		}
		b.renewed(ctx, ts, errs, r.tickets, answer, err)
	}
	if len(apart) > 0 {
		b.apart.Store(true)
		b.renew(ctx, ts, errs, b.groups(ts, apart))
	}
	if len(moves) > 0 {
		// Their slot is on its way: each lock may be in another place.
		b.renew(ctx, ts, errs, singly(moves))
	}
}

// singly makes a group of each.
func singly(which []int) [][]int {
	groups := make([][]int, len(which))
	for i, n := range which {
		groups[i] = []int{n}
	}
	return groups
}

// renewed reads the answer to one group. With an err, those that are alive are
// not renewed for sure.
func (b *Backend) renewed(ctx context.Context, ts []driver.Ticket, errs []error, group []int, answer any, err error) {
	if answer == nil {
		for _, n := range group {
			if err == nil {
				errs[n] = unknown(renewing, ts[n].Key, answer)
			} else {
				errs[n] = failed(ctx, renewing, ts[n].Key, err)
			}
		}
		return
	}
	parts, _ := answer.([]any)
	r := reply{parts: parts}
	flags := r.text()
	for i, n := range group {
		switch {
		case i >= len(flags):
			errs[n] = unknown(renewing, ts[n].Key, answer)
		case flags[i] == '+' && err != nil:
			errs[n] = failed(ctx, renewing, ts[n].Key, err)
		case flags[i] == '+':
		case flags[i] == 'x':
			errs[n] = goneFor(r.text())
		default:
			errs[n] = failed(ctx, renewing, ts[n].Key, errors.New(r.text()))
		}
	}
}

// groups says which tickets one script may renew: those of one server as far as
// that is known to be allowed.
func (b *Backend) groups(ts []driver.Ticket, which []int) [][]int {
	single, ok := b.rdb.(*redis.Client)
	switch {
	case b.sender.noPipeline:
		return singly(which)
	case ok && single != nil && !b.apart.Load():
		return chunks(nil, which)
	}
	bySlot := make(map[uint16][]int)
	for _, n := range which {
		s := slot(b.record(ts[n].Key))
		bySlot[s] = append(bySlot[s], n)
	}
	var groups [][]int
	for _, g := range bySlot {
		groups = chunks(groups, g)
	}
	return groups
}

func chunks(groups [][]int, which []int) [][]int {
	for len(which) > renewals {
		groups = append(groups, which[:renewals])
		which = which[renewals:]
	}
	return append(groups, which)
}

// slot returns the Cluster slot of a name.
func slot(name string) uint16 {
	if i := strings.IndexByte(name, '{'); i >= 0 {
		if n := strings.IndexByte(name[i+1:], '}'); n > 0 {
			name = name[i+1 : i+1+n]
		}
	}
	var crc uint16
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc & 16383
}
