package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// Break ends the claim of key whose span holds token, and writes down why, in one
// step. It costs a read of each claim in line, and that step. The claim's Backend
// hears of it with its next Renew, Await, Leave or Enter, and clears the record
// away. Where that Backend is gone, another one does when the record is old.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	return failed(ctx, "breaking into the line of", key, b.break_(ctx, key, token, reason))
}

func (b *Backend) break_(ctx context.Context, key string, token int64, reason string) error {
	conn, _, err := b.live(ctx)
	if err != nil {
		return err
	}
	dir := b.lineOf(key)
	if _, err := conn.Sync(dir).wait(ctx, b); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	l, err := b.readLine(ctx, conn, key)
	if errors.Is(err, zk.ErrNoNode) {
		return driver.ErrGone{}
	}
	if err != nil {
		return err
	}
	stats, err := b.stats(ctx, conn, dir, l.members)
	if err != nil {
		return err
	}
	for _, m := range l.members {
		if stat := stats[m.name]; stat == nil || stat.Czxid != token>>spanBits {
			continue
		}
		f, err := b.open(ctx, conn, key, m)
		if errors.Is(err, zk.ErrNoNode) {
			return driver.ErrGone{}
		}
		if err != nil {
			return err
		}
		if token&(1<<spanBits-1) >= f.card.Span {
			return driver.ErrGone{}
		}
		return b.breakAt(ctx, conn, key, f, reason)
	}
	return driver.ErrGone{}
}

func (b *Backend) breakAt(ctx context.Context, conn client, key string, f *found, reason string) error {
	record := b.recordOf(f.czxid)
	ops := []any{
		&zk.DeleteRequest{Path: f.path, Version: -1},
		&zk.CreateRequest{Path: record, Data: write(brokenRecord{Format: format, Reason: reason, TTL: f.card.TTL}), Acl: b.acl},
		&zk.SetDataRequest{Path: path.Dir(f.path), Version: -1},
	}
	rs, err := conn.Multi(ops...).wait(ctx, b)
	switch {
	case errors.Is(err, zk.ErrNoNode) && len(rs) > 0 && rs[0].Error != nil:
		return driver.ErrGone{}
	case err != nil:
		return err
	}
	if stat := rs[2].Stat; stat.NumChildren == 0 {
		b.background(func(ctx context.Context) {
			conn.Delete(path.Dir(f.path), -1).wait(ctx, b)
		})
	}
	// If its Backend does not ask for the reason, nobody will any more after this.
	time.AfterFunc(f.left()+brokenGrace, func() {
		b.background(func(ctx context.Context) {
			conn.Delete(record, -1).wait(ctx, b)
		})
	})
	return nil
}

// brokenGrace is how much longer than a lease its record is kept.
const brokenGrace = 10 * time.Second

// sweepBroken clears away records that nobody can ask for any more. There are as many
// as operators have broken locks of programs that had crashed.
func (b *Backend) sweepBroken(ctx context.Context, s *session) {
	conn, now, err := b.connected(ctx)
	if err != nil || now != s {
		return
	}
	dir := b.prefix + brokenDir
	l, err := conn.Children(dir).wait(ctx, b)
	if err != nil {
		return
	}
	for _, name := range l.names {
		record := dir + "/" + name
		n, err := conn.Get(record).wait(ctx, b)
		if err != nil {
			continue
		}
		r, err := read[brokenRecord](record, n.data)
		if err != nil {
			continue
		}
		if s.now().After(millis(n.stat.Ctime).Add(time.Duration(r.TTL)*time.Millisecond + brokenGrace)) {
			conn.Delete(record, -1).wait(ctx, b)
		}
	}
}
