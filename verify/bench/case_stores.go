package bench

import (
	"context"
	"errors"
	"os"
	"time"
)

// storeCases are a free lock, many keys at once and one key that all want, on a store
// that is no Redis.
func storeCases(store string) func(*Bench, context.Context) error {
	return func(b *Bench, ctx context.Context) error {
		b.warm = true // a server in Java is slow until it has compiled what it does
		defer func() { b.warm = false }()
		if err := b.keysPart(ctx, storePart(store, "keys"), 32, b.Rounds, 300*time.Millisecond); err != nil {
			return err
		}
		if err := b.freePart(ctx, storePart(store, "free"), 1, 3*b.Rounds, 100*time.Millisecond); err != nil {
			return err
		}
		if err := b.hotPart(ctx, storePart(store, "hot"), 64, b.Rounds, 400*time.Millisecond); err != nil {
			return err
		}
		return b.processesPart(ctx, storePart(store, "processes"), b.Rounds, 400*time.Millisecond, 0)
	}
}

// redlock is a majority of independent servers, three, five and seven of them.
func (b *Bench) redlock(ctx context.Context) error {
	for _, nodes := range []int{3, 5, 7} {
		if err := b.quorumOf(ctx, nodes); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) quorumOf(ctx context.Context, nodes int) (err error) {
	dir, err := os.MkdirTemp(b.dir, "quorum-")
	if err != nil {
		return err
	}
	p, err := startQuorum(ctx, dir, nodes)
	if err != nil {
		return err
	}
	before := b.place
	b.place = p
	defer func() {
		b.place = before
		err = errors.Join(err, p.stop())
	}()
	if err := initialiseQuorum(ctx, b.env()); err != nil {
		return err
	}
	b.warm = true
	defer func() { b.warm = false }()
	if err := b.awake(ctx, func() error {
		return b.freePart(ctx, "redlock free", nodes, 3*b.Rounds, 100*time.Millisecond)
	}); err != nil || nodes != 5 {
		return err
	}
	if err := b.keysPart(ctx, "redlock keys", 64, b.Rounds, 300*time.Millisecond); err != nil {
		return err
	}
	return b.hotPart(ctx, "redlock hot", 64, b.Rounds, 400*time.Millisecond)
}
