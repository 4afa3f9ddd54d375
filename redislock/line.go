package redislock

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
	"github.com/redis/go-redis/v9"
)

const reading = "looking at the line of"

// Line describes the line of key as it is now, in one request that writes nothing.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Line{}, err
	}
	return b.lineOf(ctx, key, b.transport.Do(ctx, b.command(linesScript, key)))
}

// lineOf reads the result of the script lines.
func (b *Backend) lineOf(ctx context.Context, key string, got transport.Result) (driver.Line, error) {
	if got.Err != nil {
		return driver.Line{}, failed(ctx, reading, key, got.Err)
	}
	line, ok := parseLine(key, got.Answer)
	if !ok {
		return driver.Line{Key: key}, badAnswer(reading, key, got.Answer)
	}
	return line, nil
}

// parseLine reads what the script lines answered. It reports whether that made sense.
func parseLine(key string, answer any) (line driver.Line, ok bool) {
	line.Key = key
	parts, _ := answer.([]any)
	r := reply{parts: parts}
	now := time.UnixMicro(r.number())
	line.Last, line.Mark = r.number(), driver.Mark(r.text())
	var before int64
	for len(r.parts) > 0 && !r.bad {
		id, lingers := strings.CutPrefix(r.text(), "~")
		left := time.UnixMicro(r.number()).Sub(now)
		c, readable := parseClaim(r.text())
		id, _, isID := cutPrefixed(id)
		if !readable || !isID {
			return line, false
		}
		if left <= 0 {
			continue
		}
		s := driver.Standing{
			ID:        driver.ShortID(id),
			Owner:     c.owner,
			Note:      c.note,
			Capacity:  c.capacity,
			Weight:    c.weight,
			Token:     c.token,
			Span:      c.span,
			Granted:   c.weight+before <= c.capacity,
			Lingering: lingers,
			Since:     c.since,
			Left:      left,
		}
		if s.Granted && !c.granted {
			// It became so when a lease before it ended, and no script has run since.
			s.Since = now
		}
		before += c.weight
		line.Claims = append(line.Claims, s)
	}
	return line, !r.bad
}

// scanCount is how many names the server goes through in one request of Lines.
const scanCount = 1000

// Lines goes through all names of the server, or of every master of a Cluster, and
// reads the lines whose keys begin with prefix. It costs one request for each
// thousand names, and one for each line.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		nodes, err := b.nodes(ctx)
		if err != nil {
			yield(driver.Line{}, failed(ctx, "listing locks that begin with", prefix, err))
			return
		}
		seen := make(map[string]bool)
		for _, n := range nodes {
			if !b.scan(ctx, n, prefix, seen, yield) {
				return
			}
		}
	}
}

// nodes returns what SCAN has to be sent to.
func (b *Backend) nodes(ctx context.Context) ([]redis.Cmdable, error) {
	var mu sync.Mutex
	var nodes []redis.Cmdable
	each := func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, c)
		return nil
	}
	switch c := b.rdb.(type) {
	case *redis.ClusterClient:
		err := promptly(ctx, func() error { return c.ForEachMaster(ctx, each) })
		return nodes, err
	case *redis.Ring:
		err := promptly(ctx, func() error { return c.ForEachShard(ctx, each) })
		return nodes, err
	}
	return []redis.Cmdable{b.rdb}, nil
}

// promptly returns when f does or ctx ends: go-redis may wait longer for a
// connection that hangs. If it returns ctx's error, f may still be running.
func promptly(ctx context.Context, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scan yields the lines of one server. It reports whether to go on.
func (b *Backend) scan(ctx context.Context, node redis.Cmdable, prefix string, seen map[string]bool,
	yield func(driver.Line, error) bool) bool {
	var cursor uint64
	for {
		var page *redis.ScanCmd
		from := cursor
		err := promptly(ctx, func() error {
			c := node.Scan(ctx, from, b.glob(prefix), scanCount)
			page = c
			return c.Err()
		})
		if err == nil && b.closed.Load() {
			err = driver.ErrClosed
		}
		if err != nil {
			yield(driver.Line{}, failed(ctx, "listing locks that begin with", prefix, err))
			return false
		}
		var names []string
		names, cursor = page.Val()
		if !b.readAll(ctx, names, seen, yield) {
			return false
		}
		if cursor == 0 {
			return true
		}
	}
}

// readAll yields the lines of some records, which are read together.
func (b *Backend) readAll(ctx context.Context, records []string, seen map[string]bool,
	yield func(driver.Line, error) bool) bool {
	var keys []string
	for _, r := range records {
		// SCAN may say a name twice.
		if key, ok := b.keyOf(r); ok && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for some := range slices.Chunk(keys, 100) {
		cmds := make([]*transport.Command, len(some))
		for i, key := range some {
			cmds[i] = b.command(linesScript, key)
			b.transport.Start(ctx, cmds[i])
		}
		for i, key := range some {
			line, err := b.lineOf(ctx, key, b.transport.Wait(ctx, cmds[i]))
			if err != nil {
				yield(driver.Line{}, err)
				return false
			}
			if len(line.Claims) > 0 && !yield(line, nil) {
				return false
			}
		}
	}
	return true
}
