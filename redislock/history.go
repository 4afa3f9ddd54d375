package redislock

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/redis/go-redis/v9"
)

const (
	recording    = "writing the history of"
	remembering  = "reading the history of"
	maxPerGrant  = 3 // records: its beginning, its end, and who broke it
	keptPerGrant = 2
)

var _ record.Store = (*Backend)(nil)

// Record adds es to the streams of their keys, in one request for each key. These go out
// together. A stream is in the hash slot of its lock, and ends when nothing was written to it
// for keep.For.
func (b *Backend) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	argvs := map[string][]any{}
	for _, e := range es {
		text, err := json.Marshal(e)
		if err != nil {
			return driver.Permanent(err)
		}
		if argvs[e.Key] == nil {
			argvs[e.Key] = []any{keptPerGrant * keep.Keep, max(keep.For.Milliseconds(), 1)}
		}
		argvs[e.Key] = append(argvs[e.Key], text)
	}
	keys := slices.Collect(maps.Keys(argvs))
	rs := make([]*request, len(keys))
	for i, key := range keys {
		rs[i] = &request{script: historyAddScript, key: b.historyName(key), args: argvs[key]}
	}
	b.transport.start(ctx, rs...)
	var failure error
	for i, key := range keys {
		failure = cmp.Or(failure, b.done(ctx, recording, key, b.transport.wait(ctx, rs[i])))
	}
	return failure
}

// historyName returns the stream of a lock.
func (b *Backend) historyName(key string) string { return b.hashName(key) + "h" }

// History reads what is known of the last n grants of key, in one request.
func (b *Backend) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	stream := make(chan []redis.XMessage, 1)
	err := inTime(ctx, func() error {
		records, err := b.rdb.XRevRangeN(ctx, b.historyName(key), "+", "-", int64(maxPerGrant*n)).Result()
		stream <- records
		return err
	})
	if err != nil {
		return nil, b.failed(ctx, remembering, key, err)
	}
	grants := map[int64]*record.Entry{}
	for _, r := range slices.Backward(<-stream) {
		text, _ := r.Values["entry"].(string)
		e := record.Entry{Key: key}
		if json.Unmarshal([]byte(text), &e) != nil {
			return nil, badAnswer(remembering, key, r.Values)
		}
		if grants[e.Token] == nil {
			grants[e.Token] = &record.Entry{Key: key, Token: e.Token}
		}
		grants[e.Token].Merge(e)
	}
	tokens := slices.Sorted(maps.Keys(grants))
	slices.Reverse(tokens)
	es := make([]record.Entry, 0, min(n, len(tokens)))
	for _, token := range tokens[:min(n, len(tokens))] {
		es = append(es, *grants[token])
	}
	return es, nil
}
