package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
)

// records lets f change what a Record is asked.
func (b *broken) records(f func(es []record.Entry, keep *record.Bounds) []record.Entry) {
	b.record = func(ctx context.Context, es []record.Entry, keep record.Bounds) error {
		return b.Member.Record(ctx, f(slices.Clone(es), &keep), keep)
	}
}

var brokenHistories = []breaker{
	{"the oldest come first", func(b *broken) {
		b.history = func(ctx context.Context, key string, n int) ([]record.Entry, error) {
			es, err := b.Member.History(ctx, key, n)
			slices.Reverse(es)
			return es, err
		}
	}, "HistoryIsKept HistoryMerges HistoryIsBoundedByCount"},
	{"an entry replaces what was known of the grant", func(b *broken) {
		b.history = func(ctx context.Context, key string, n int) ([]record.Entry, error) {
			es, err := b.Member.History(ctx, key, n)
			for i := range es {
				if es[i].End == "released" {
					es[i].Owner = ""
				}
			}
			return es, err
		}
	}, "HistoryMerges"},
	{"nothing is forgotten for its number", func(b *broken) {
		b.records(func(es []record.Entry, keep *record.Bounds) []record.Entry {
			keep.Keep = 1000
			return es
		})
	}, "HistoryIsBoundedByCount"},
	{"nothing is forgotten for its age", func(b *broken) {
		b.records(func(es []record.Entry, keep *record.Bounds) []record.Entry {
			keep.For = time.Hour
			return es
		})
	}, "HistoryIsBoundedByAge"},
	{"keys are cut", func(b *broken) {
		b.records(func(es []record.Entry, _ *record.Bounds) []record.Entry {
			for i := range es {
				es[i].Key = es[i].Key[:min(len(es[i].Key), 255)]
			}
			return es
		})
	}, "HistoryHasAnyKey"},
	{"a history is a line", func(b *broken) {
		b.lists(func(_ context.Context, prefix string, yield func(driver.Line, error) bool) {
			if b.count("records", 0) > 0 {
				yield(driver.Line{Key: prefix + "1.", Claims: []driver.Standing{{Claim: driver.Claim{ID: "history"}, Token: 1}}}, nil)
			}
		})
		b.records(func(es []record.Entry, _ *record.Bounds) []record.Entry {
			b.count("records", 1)
			return es
		})
	}, "HistoryIsNoLine"},
}
