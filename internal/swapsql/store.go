// Package swapsql is a swaplock.Store in a SQL database: two tables and plain statements, each
// in a transaction of its own, so that a client that stops holds no row. It is to become the
// store of sqllock.
package swapsql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/swaplock"
)

// Store keeps lines in a database.
type Store struct {
	db *sql.DB
	d  *Dialect
	mu sync.Mutex // one writer at a time, if the dialect says so
}

// New returns a Store on the user's pool.
func New(db *sql.DB, d *Dialect) *Store { return &Store{db: db, d: d} }

// CreateTables makes the tables unless they are there.
func (s *Store) CreateTables(ctx context.Context) error {
	for _, text := range s.d.schema {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// Traits say what the database is.
func (s *Store) Traits() swaplock.Traits { return swaplock.Traits{Name: s.d.name} }

// write runs a statement, and says how many rows it has changed.
func (s *Store) write(ctx context.Context, text string, args ...any) (int64, error) {
	if s.d.oneWrite {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	res, err := s.db.ExecContext(ctx, s.d.sql(text), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Read reads the row of key, and its leases.
func (s *Store) Read(ctx context.Context, key string, _ int) (st swaplock.State, err error) {
	var now int64
	var version, last, expires sql.NullInt64
	var mark, markedBy, holder []byte
	var line, records sql.NullString
	err = s.db.QueryRowContext(ctx, s.d.sql(readSQL), []byte(key), []byte(key)).Scan(
		&now, &version, &last, &mark, &markedBy, &holder, &expires, &line, &records)
	if err != nil {
		return st, err
	}
	st = swaplock.State{Now: fromMicros(now), Records: map[string]time.Time{}}
	st.Content = swaplock.Content{
		Last: last.Int64, Mark: string(mark), MarkedBy: string(markedBy), Holder: string(holder),
		Expires: fromMicros(expires.Int64), Document: []byte(line.String),
	}
	if version.Valid {
		st.Version = strconv.FormatInt(version.Int64, 10)
	}
	for record := range strings.SplitSeq(records.String, ",") {
		id, end, _ := strings.Cut(record, ":")
		if id == "" {
			continue
		}
		raw, err := hex.DecodeString(id)
		if err != nil {
			return st, fmt.Errorf("the ID of a lease: %w", err)
		}
		us, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return st, fmt.Errorf("the end of a lease: %w", err)
		}
		st.Records[string(raw)] = fromMicros(us)
	}
	return st, nil
}

// Swap writes the row of key if nobody has since it was read.
func (s *Store) Swap(ctx context.Context, key string, c *swaplock.Change) (version string, err error) {
	if s.d.oneWrite {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	if len(c.Lend)+len(c.Drop) == 0 {
		return s.swap(ctx, s.db, key, c)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if version, err = s.swap(ctx, tx, key, c); err != nil || version == "" {
		return "", err
	}
	for _, id := range c.Drop {
		if _, err := tx.ExecContext(ctx, s.d.sql(dropSQL), []byte(key), []byte(id)); err != nil {
			return "", err
		}
	}
	for _, l := range c.Lend {
		if _, err := tx.ExecContext(ctx, s.d.sql(lendSQL), []byte(key), []byte(l.ID), ttl(l)); err != nil {
			return "", err
		}
	}
	return version, tx.Commit()
}

// execer is a pool or a transaction.
type execer interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}

func (s *Store) swap(ctx context.Context, db execer, key string, c *swaplock.Change) (string, error) {
	mark, by, holder, expires := []byte(c.Mark), []byte(c.MarkedBy), []byte(c.Holder), micros(c.Expires)
	text, version := insertSQL, time.Now().UnixMicro()
	args := []any{[]byte(key), version, c.Last, mark, by, holder, expires, string(c.Document)}
	if c.If != "" {
		seen, err := strconv.ParseInt(c.If, 10, 64)
		if err != nil {
			return "", err
		}
		text, version = swapSQL, seen+1
		args = []any{version, c.Last, mark, by, holder, expires, expires, holder, string(c.Document), []byte(key), seen}
		if !c.Ended.IsZero() {
			text, args = text+endedSQL, append(args, micros(c.Ended))
		}
		if !c.Before.IsZero() {
			text, args = text+beforeSQL, append(args, c.Before.UnixMicro())
		}
	}
	res, err := db.ExecContext(ctx, s.d.sql(text), args...)
	if err != nil {
		return "", err
	}
	if n, err := res.RowsAffected(); n == 0 || err != nil {
		return "", err
	}
	return strconv.FormatInt(version, 10), nil
}

// Renew has leases end later.
func (s *Store) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	alive := make([]bool, len(ls))
	for i, l := range ls {
		for _, text := range []string{holderSQL, recordSQL} {
			n, err := s.write(ctx, text, ttl(l), []byte(l.Key), []byte(l.ID))
			if err != nil {
				return nil, err
			}
			if alive[i] = n > 0; alive[i] {
				break
			}
		}
	}
	return alive, nil
}

// Purge removes records that have ended.
func (s *Store) Purge(ctx context.Context, key string, ids []string) error {
	for _, id := range ids {
		if _, err := s.write(ctx, purgeSQL, []byte(key), []byte(id)); err != nil {
			return err
		}
	}
	return nil
}

// Forget removes the lines and the leases that nobody needs.
func (s *Store) Forget(ctx context.Context, last int64) (stale []string, err error) {
	if _, err := s.write(ctx, forgetSQL, last); err != nil {
		return nil, err
	}
	_, err = s.write(ctx, endedLeasesSQL)
	return nil, err
}

// List yields the lines whose keys begin with prefix, in the order of bytes.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		for from := prefix; ; {
			keys, err := s.page(ctx, from)
			if err != nil {
				yield(swaplock.Keyed{}, err)
				return
			}
			for _, key := range keys {
				if !strings.HasPrefix(key, prefix) {
					return
				}
				st, err := s.Read(ctx, key, -1)
				if !yield(swaplock.Keyed{Key: key, State: st}, err) || err != nil {
					return
				}
				from = key + "\x00"
			}
			if len(keys) == 0 {
				return
			}
		}
	}
}

func (s *Store) page(ctx context.Context, from string) (keys []string, err error) {
	rows, err := s.db.QueryContext(ctx, s.d.sql(listSQL), []byte(from))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, string(key))
	}
	return keys, rows.Err()
}

// pollEvery is how often the lines are looked at for which somebody waits.
const pollEvery = 10 * time.Millisecond

// Watch looks again and again whether the lines have changed for which somebody waits.
func (s *Store) Watch(ctx context.Context, waiting func() map[string]string, hear func(string, []swaplock.News)) error {
	hear("", nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
		if err := s.poll(ctx, waiting(), hear); err != nil {
			return err
		}
	}
}

// poll reads the versions of the keys of known, and tells of those that have changed.
func (s *Store) poll(ctx context.Context, known map[string]string, hear func(string, []swaplock.News)) error {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(known)), 100) {
		args := make([]any, len(keys))
		for i, key := range keys {
			args[i] = []byte(key)
		}
		rows, err := s.db.QueryContext(ctx, s.d.sql(pollSQL+strings.Repeat(", ?", len(keys)-1)+")"), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key []byte
			var version string
			if err := rows.Scan(&key, &version); err != nil {
				return err
			}
			if known[string(key)] != version {
				hear(string(key), nil)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// micros rounds up: a lease ends a moment late, and not early.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Microsecond - 1).UnixMicro()
}

func ttl(l swaplock.Lease) int64 { return (l.TTL + time.Microsecond - 1).Microseconds() }

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
