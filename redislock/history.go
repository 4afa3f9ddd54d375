package redislock

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/redislock/internal/transport"
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
	cmds := make([]*transport.Command, len(keys))
	for i, key := range keys {
		cmds[i] = b.historyCommand(historyAddScript, key, argvs[key]...)
	}
	b.transport.Start(ctx, cmds...)
	var failure error
	for i, key := range keys {
		failure = cmp.Or(failure, b.done(ctx, recording, key, b.transport.Wait(ctx, cmds[i])))
	}
	return failure
}

// historyCommand makes a call of a script that works on the history of one lock.
func (b *Backend) historyCommand(s *transport.Script, key string, argv ...any) *transport.Command {
	return transport.NewCommand(s, []any{b.recordName(key) + "h"}, argv...)
}

// History reads what is known of the last n grants of key, in one request.
func (b *Backend) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	got := b.transport.Do(ctx, b.historyCommand(historyScript, key, maxPerGrant*n))
	if got.Err != nil {
		return nil, b.answered(ctx, remembering, key, got)
	}
	records, ok := got.Answer.([]any)
	grants := map[int64]*record.Entry{}
	for _, r := range slices.Backward(records) {
		text, _ := r.(string)
		e := record.Entry{Key: key}
		if ok = ok && json.Unmarshal([]byte(text), &e) == nil; !ok {
			break
		}
		if grants[e.Token] == nil {
			grants[e.Token] = &record.Entry{Key: key, Token: e.Token}
		}
		grants[e.Token].Merge(e)
	}
	if !ok {
		return nil, badAnswer(remembering, key, got.Answer)
	}
	tokens := slices.Sorted(maps.Keys(grants))
	slices.Reverse(tokens)
	es := make([]record.Entry, 0, min(n, len(tokens)))
	for _, token := range tokens[:min(n, len(tokens))] {
		es = append(es, *grants[token])
	}
	return es, nil
}
