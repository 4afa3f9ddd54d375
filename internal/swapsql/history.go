package swapsql

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
)

const (
	entrySQL  = `SELECT ?{bytes} AS a, ?{int} AS b, {now} AS c, ?{txt} AS d`
	recordSQL = `INSERT INTO fencelock_history (lock_key, token, written, entry)
SELECT a, b, c, d FROM (%s) v WHERE {alone} {merge}`
	tooManySQL = `DELETE FROM fencelock_history WHERE lock_key = ? AND token <= (SELECT token FROM (
	SELECT token FROM fencelock_history WHERE lock_key = ? ORDER BY token DESC LIMIT 1 OFFSET ?) old) AND {alone}`
	tooOldSQL  = `DELETE FROM fencelock_history WHERE written < {now} - ? AND {alone}`
	historySQL = `SELECT {text} FROM fencelock_history WHERE lock_key = ? AND {alone} ORDER BY token DESC LIMIT ?`
)

// Record adds es to the histories of their keys.
func (s *Store) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	keys := map[string]bool{}
	for some := range slices.Chunk(es, mostAtOnce) {
		var args []any
		for _, e := range some {
			e.Reason = strings.ReplaceAll(e.Reason, "\x00", "") // PostgreSQL takes it in no text
			entry, err := json.Marshal(e)
			if err != nil {
				return driver.Permanent(err)
			}
			args = append(args, []byte(e.Key), e.Token, ascii(entry))
			keys[e.Key] = true
		}
		rows := entrySQL + strings.Repeat(" UNION ALL "+entrySQL, len(some)-1)
		_, err := s.write(ctx, "write the history", "", strings.Replace(recordSQL, "%s", rows, 1), args...)
		if err != nil {
			return err
		}
	}
	for key := range keys {
		_, err := s.write(ctx, "write the history", key, tooManySQL, []byte(key), []byte(key), int64(keep.Keep))
		if err != nil {
			return err
		}
	}
	_, err := s.write(ctx, "write the history", "", tooOldSQL, keep.For.Microseconds())
	return err
}

// History returns what is known of the last n grants of key.
func (s *Store) History(ctx context.Context, key string, n int) (es []record.Entry, err error) {
	q := s.statement("read the history of", key, historySQL, []byte(key), int64(n))
	q.Keeps = false
	q.Begin = func() { es = nil }
	q.Row = func(scan func(to ...any) error) error {
		var text []byte
		if err := scan(&text); err != nil {
			return err
		}
		e := record.Entry{Key: key}
		if err := json.Unmarshal(text, &e); err != nil {
			return driver.Permanent(fmt.Errorf("an entry in the history of %q cannot be read: %w", key, err))
		}
		es = append(es, e)
		return nil
	}
	_, err = s.conns.Run(ctx, q)
	return es, err
}
