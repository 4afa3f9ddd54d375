package redislock

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/redis/go-redis/v9"
)

const reading = "looking at the line of"

// Line describes the line of key as it is now, in one request, which takes out what has
// expired. Only a master answers it.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Line{}, err
	}
	return b.lineOf(ctx, key, b.transport.do(ctx, b.request(lookScript, key)))
}

// pingKeys is how many keys Ping reads. The node of a Cluster that has nine of ten hash slots
// serves all of them once in a thousand times.
const pingKeys = 64

// Ping reads keys in many hash slots, in one request, and fails if the server refuses one. So
// it finds a client for one server that is connected to a node of a Cluster. It takes no lock.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	keys := make([]string, pingKeys)
	for i := range keys {
		keys[i] = "fencelock/ping/" + strconv.Itoa(i)
	}
	var failed error
	for _, err := range b.look(ctx, keys) {
		failed = cmp.Or(failed, err)
	}
	return failed
}

// look reads lines together.
func (b *Backend) look(ctx context.Context, keys []string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		rs := make([]*request, len(keys))
		for i, key := range keys {
			rs[i] = b.request(lookScript, key)
		}
		b.transport.start(ctx, rs...)
		for i, key := range keys {
			if !yield(b.lineOf(ctx, key, b.transport.wait(ctx, rs[i]))) {
				return
			}
		}
	}
}

// lineOf reads the result of the script look.
func (b *Backend) lineOf(ctx context.Context, key string, got *request) (driver.Line, error) {
	if got.err != nil {
		return driver.Line{}, b.answered(ctx, reading, key, got)
	}
	return parseLine(key, got.answer)
}

// parseLine reads what the script look answered.
func parseLine(key string, answer any) (driver.Line, error) {
	line := driver.Line{Key: key}
	s, _ := answer.(string)
	f := fields{rest: s}
	now := f.time()
	line.Last = f.number(" ")
	size, hold := f.number(" "), f.number(" ")
	line.Mark = f.prefixed()
	for i := int64(0); f.rest != "" && !f.bad; i++ {
		kind, id, _ := strings.Cut(f.prefixed(), ":")
		c, ok := parseClaim(f.prefixed(), now)
		c.ID, c.Capacity = driverutil.ShortID(id), size
		c.Granted, c.Lingering, c.Reason = i < hold, kind == "l", f.prefixed()
		line.Claims = append(line.Claims, c)
		f.bad = f.bad || !ok
	}
	if f.bad {
		return driver.Line{Key: key}, badAnswer(reading, key, answer)
	}
	slices.SortFunc(line.Claims, func(a, b driver.Standing) int { return cmp.Compare(a.Token, b.Token) })
	return line, nil
}

const (
	listing = "listing locks that begin with"
	// scanCount is how many names the server goes through in one request of Lines.
	scanCount = 1000
	// maxReads is how many lines are read together.
	maxReads = 100
)

// Lines goes through all names of the server, or of every master of a Cluster, and then
// reads the lines whose keys begin with prefix. It costs one request for each
// thousand names, and one for each line.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(driver.Line{}, err)
			return
		}
		keys, err := b.scan(ctx, prefix)
		if err != nil {
			yield(driver.Line{}, b.failed(ctx, listing, prefix, err))
			return
		}
		for some := range slices.Chunk(keys, maxReads) {
			if err := b.ready(ctx); err != nil {
				yield(driver.Line{}, err)
				return
			}
			for line, err := range b.look(ctx, some) {
				if err == nil && len(line.Claims) == 0 {
					continue
				}
				if !yield(line, err) || err != nil {
					return
				}
			}
		}
	}
}

// scan returns the keys that begin with prefix, of all servers.
func (b *Backend) scan(ctx context.Context, prefix string) ([]string, error) {
	var mu sync.Mutex
	keys := make(map[string]bool) // SCAN may return a name twice
	err := b.eachServer(ctx, func(ctx context.Context, _ string, node redis.UniversalClient) error {
		names := node.Scan(ctx, 0, b.glob(prefix), scanCount).Iterator()
		for names.Next(ctx) {
			if b.subscriber.ctx.Err() != nil {
				return driver.ErrClosed
			}
			if key, ok := b.keyOf(names.Val()); ok {
				mu.Lock()
				keys[key] = true
				mu.Unlock()
			}
		}
		return names.Err()
	})
	mu.Lock() // a scan may go on when ctx has ended
	defer mu.Unlock()
	return slices.Collect(maps.Keys(keys)), err
}

// eachServer calls f for every server that keeps locks, of a Cluster at once for all masters
// and with their addresses. f may go on when it has returned.
func (b *Backend) eachServer(
	ctx context.Context, f func(ctx context.Context, addr string, node redis.UniversalClient) error,
) error {
	each := func(ctx context.Context, node *redis.Client) error { return f(ctx, node.Options().Addr, node) }
	return inTime(ctx, func() error {
		if c := b.transport.cluster; c != nil {
			return c.ForEachMaster(ctx, each)
		}
		return f(ctx, "", b.rdb)
	})
}

// inTime calls f, and returns when ctx ends, also while go-redis waits longer for a connection that hangs.
func inTime(ctx context.Context, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
