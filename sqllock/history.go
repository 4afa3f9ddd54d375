package sqllock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver/record"
)

var _ record.Store = (*oldBackend)(nil)

// Record adds es to the table of the history: one statement, on SQLite one transaction. On
// PostgreSQL the commit does not wait for the disk.
func (b *oldBackend) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	records, err := newRecords(es)
	if err != nil || len(records) == 0 {
		return err
	}
	text, err := json.Marshal(records)
	if err != nil {
		return permanent(err)
	}
	return b.step(ctx, func(ctx context.Context) (effects, error) {
		args := []any{text, int64(keep.Keep), keep.For.Microseconds()}
		_, err := b.store.call(ctx, "write the history", "", &history{}, "record", args...)
		return effects{}, err
	})
}

// History reads what is known of the last n grants of key, in one statement.
func (b *oldBackend) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	return read(ctx, b, func(ctx context.Context) ([]record.Entry, error) {
		h := &history{key: key}
		_, err := b.store.call(ctx, "read the history of", key, h, "history", []byte(key), int64(n))
		return h.entries, err
	})
}

// historyRow is an entry on its way to the database.
type historyRow struct {
	Key   []byte `json:"key"` // in base64
	Token int64  `json:"token"`
	Entry string `json:"entry"` // JSON
}

func newRecords(es []record.Entry) ([]historyRow, error) {
	records := make([]historyRow, len(es))
	for i, e := range es {
		e.Reason = strings.ReplaceAll(e.Reason, "\x00", "") // PostgreSQL takes it in no text
		entry, err := json.Marshal(e)
		if err != nil {
			return nil, permanent(err)
		}
		records[i] = historyRow{[]byte(e.Key), e.Token, string(entry)}
	}
	return records, nil
}

// history takes the rows of an answer.
type history struct {
	key     string
	entries []record.Entry
}

func (h *history) begin() { h.entries = nil }

func (h *history) add(r *row) error {
	e := record.Entry{Key: h.key}
	if err := json.Unmarshal([]byte(r.note), &e); err != nil {
		return permanent(fmt.Errorf("an entry in the history of %q cannot be read: %w", h.key, err))
	}
	h.entries = append(h.entries, e)
	return nil
}

// record adds to the history on SQLite.
func (t *txn) record() error {
	var records []historyRow
	if err := json.Unmarshal(t.args[0].([]byte), &records); err != nil {
		return err
	}
	keys := map[string]bool{}
	for _, r := range records {
		keys[string(r.Key)] = true
		if _, err := t.query("record", []any{r.Key, r.Token, r.Entry}, t.take); err != nil {
			return err
		}
	}
	for key := range keys {
		if _, err := t.query("forget", []any{[]byte(key), t.args[1], t.args[2]}, t.take); err != nil {
			return err
		}
	}
	return nil
}
