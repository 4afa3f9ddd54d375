// Package swapsql is a swaplock.Store in a SQL database: a few tables and plain statements, each
// in a transaction of its own, so that a client that stops holds no row. It is the store of
// sqllock.
package swapsql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

var _ swaplock.Arriver = (*Store)(nil)

// Store keeps lines in a database, and a history.
type Store struct {
	conns Conns
	d     *Dialect
	o     Options
	word  func(text string) string // see Dialect.replacer
	node  string                   // if the process hears what others tell

	under        atomic.Int64 // statements under way that take or write a line
	takes, frees *batcher     // on PostgreSQL
}

// Options of a Store.
type Options struct {
	Prefix string // of the tables; the default is "fencelock_"
	// Listen is Options.Listen of sqllock, for PostgreSQL.
	Listen func(ctx context.Context, channel string, heard func()) error
}

// New returns a Store on connections.
func New(conns Conns, d *Dialect, o Options) *Store {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	s := &Store{conns: conns, d: d, o: o, word: d.replacer(o.Prefix)}
	if o.Listen != nil {
		s.node = strconv.FormatUint(rand.Uint64(), 36)
	}
	if d.kind == postgres {
		s.takes = &batcher{s: s, what: "enter the lines of some locks", text: takeManySQL, columns: 2}
		s.frees = &batcher{s: s, what: "leave the lines of some locks", text: freeManySQL, columns: 1, keeps: true}
	}
	return s
}

// Traits say what the database is.
func (s *Store) Traits() swaplock.Traits {
	return swaplock.Traits{Name: s.d.Name, Namespace: s.o.Prefix, Node: s.node}
}

// Lost says what the connections know of it.
func (s *Store) Lost() (times int64, reason string) {
	if l, ok := s.conns.(swaplock.Losable); ok {
		return l.Lost()
	}
	return 0, ""
}

// lostBefore is how often the file was lost before that opening.
func lostBefore(opening int64) int64 { return max(0, opening-1) }

const (
	// A line is read by one statement, so that it and the leases are of one moment. The rows of leases have no
	// time. The bound outdoes sql_select_limit. A standby refuses it, as it does a write, and poolers that send reads
	// to standbys know that.
	readSQL = `{sure}SELECT {now}, l.version, l.last, {hex}l.mark{/hex}, {hex}l.marked_by{/hex}, {hex}l.holder{/hex},
	l.expires, l.open_until, l.capacity, l.line, l.arrivals
FROM (SELECT 1 AS one) o LEFT JOIN fencelock_swap l ON l.lock_key = ? WHERE {alone}
UNION ALL SELECT 0, 0, 0, {hex}id{/hex}, '', {hex}id{/hex}, ending, 0, 0, '', '' FROM fencelock_lease
WHERE of_key = ? AND ending > 0 AND {alone} LIMIT 1000000`
	// readMost is how many bytes of the arrivals are read for some of them: there may be thousands in line.
	readMost = 8 << 10
	listSQL  = `{sure}SELECT {hex}lock_key{/hex} FROM fencelock_swap
WHERE lock_key >= ? AND length(line) + length(arrivals) > 0 AND {alone} ORDER BY lock_key LIMIT 200`
	purgeSQL = `DELETE FROM fencelock_lease WHERE of_key = ? AND (%s) AND ` + overNowSQL + ` AND {alone}`
	// What nobody needs is looked for without a lock, and deleted by its key, some rows at a time: MariaDB and MySQL
	// lock each row that a DELETE looks at until it has ended, and hours of a busy program leave millions.
	idleSQL = `SELECT {hex}lock_key{/hex} FROM fencelock_swap WHERE lock_key > ? AND last < ?
	AND length(line) + length(arrivals) = 0 AND length(mark) = 0 AND {alone} ORDER BY lock_key LIMIT 1000`
	forgetSQL = `DELETE FROM fencelock_swap WHERE last < ? AND length(line) + length(arrivals) = 0
	AND length(mark) = 0 AND lock_key IN (?%s) AND {alone}`
	staleSQL = `SELECT {hex}lock_key{/hex} FROM fencelock_swap WHERE lock_key > ? AND last < ?
	AND length(line) + length(arrivals) > 0 AND {alone} ORDER BY lock_key LIMIT 1000`
	overSQL = `SELECT {hex}of_key{/hex}, {hex}id{/hex} FROM fencelock_lease
	WHERE ` + overNowSQL + ` AND {alone} LIMIT 1000`
	// What a swap on MariaDB or MySQL was to begin is over after a day: see noLeaseSQL.
	overNowSQL = `ending <= {now} AND ending > 86400000000 - {now}`
)

// readSomeSQL reads one byte more than readMost, so that it shows whether there are others.
var readSomeSQL = strings.Replace(readSQL, "l.arrivals", fmt.Sprintf("substr(l.arrivals, 1, %d)", readMost+1), 1)

// statement is one that keeps or ends claims.
func (s *Store) statement(what, key, text string, args ...any) *Statement {
	return &Statement{What: what, Key: key, Keeps: true, Text: s.word(text), Args: args}
}

// write runs a statement, and says how many rows it has changed.
func (s *Store) write(ctx context.Context, what, key, text string, args ...any) (int64, error) {
	st := s.statement(what, key, text, args...)
	st.Writes = true
	return s.conns.Run(ctx, st)
}

// Read reads the row of key, and its leases.
func (s *Store) Read(ctx context.Context, key string, arrivals int) (st swaplock.State, err error) {
	if arrivals >= 0 {
		st, err = s.read(ctx, key, arrivals, readSomeSQL)
		if err != nil || arrivals == 0 || !st.More || len(st.Arrivals) > 0 {
			return st, err
		}
	}
	return s.read(ctx, key, arrivals, readSQL) // the first one may be longer than readMost
}

// read is Read by one of the two statements.
func (s *Store) read(ctx context.Context, key string, arrivals int, text string) (st swaplock.State, err error) {
	q := s.statement("read the line of", key, text, []byte(key), []byte(key))
	q.Begin = func() { st = swaplock.State{Records: map[string]time.Time{}} }
	q.Row = func(scan func(to ...any) error) error {
		var r lineRow
		err := scan(r.columns(s)...)
		switch {
		case err != nil:
		case r.now.Int64 == 0:
			st.Records[string(r.holder)] = fromMicros(r.expires.Int64)
		default:
			leases := st.Records
			st, err = s.state(key, &r, arrivals, text == readSomeSQL, q.Opening)
			st.Records = leases
		}
		return err
	}
	_, err = s.conns.Run(ctx, q)
	if err == nil {
		err = s.unbind(ctx, key, arrivals, &st)
	}
	return st, err
}

// lineRow is the row of a line.
type lineRow struct {
	now, number, last, expires, open, capacity sql.NullInt64
	mark, markedBy, holder                     []byte
	line, arrived                              sql.NullString
}

func (r *lineRow) columns(s *Store) []any {
	return []any{
		&r.now, &r.number, &r.last, s.bytes(&r.mark), s.bytes(&r.markedBy), s.bytes(&r.holder), &r.expires,
		&r.open, &r.capacity, &r.line, &r.arrived,
	}
}

// state is what r says of key, with at most so many arrivals. Some arrivals may be missing.
func (s *Store) state(key string, r *lineRow, arrivals int, some bool, opening int64) (st swaplock.State, err error) {
	st.Now, st.Lost = fromMicros(r.now.Int64), lostBefore(opening)
	st.Content = swaplock.Content{
		Last: r.last.Int64, Mark: string(r.mark), MarkedBy: string(r.markedBy), Holder: string(r.holder),
		Expires: fromMicros(r.expires.Int64), Document: []byte(r.line.String),
		Open: fromMicros(r.open.Int64), Capacity: r.capacity.Int64,
	}
	if !r.number.Valid {
		return st, nil
	}
	whole := r.arrived.String
	if some && len(whole) > readMost {
		whole = whole[:strings.LastIndexByte(whole[:readMost], '\n')+1]
	}
	var at ends
	st.Arrivals, at, err = s.parseArrivals(key, whole, arrivals)
	all := len(r.arrived.String)
	st.More = len(at) > 0 && at[len(at)-1] < all || len(at) == 0 && all > 0
	st.Version, st.Seen = version{r.number.Int64, opening}.String(), at
	return st, err
}

// Purge removes records that have ended.
func (s *Store) Purge(ctx context.Context, key string, ids []string) error {
	for some := range slices.Chunk(ids, mostAtOnce) {
		args := []any{[]byte(key)}
		for _, id := range some {
			args = append(args, []byte(id))
		}
		text := strings.Replace(purgeSQL, "%s", anyID(len(some)), 1)
		if _, err := s.write(ctx, "end leases of", key, text, args...); err != nil {
			return err
		}
	}
	return nil
}

// anyID is true of n IDs.
func anyID(n int) string { return "id = ?" + strings.Repeat(" OR id = ?", n-1) }

// Forget removes the lines and the leases that nobody needs.
func (s *Store) Forget(ctx context.Context, last int64) (stale []string, err error) {
	if err = s.forgetLines(ctx, last); err != nil {
		return nil, err
	}
	if err = s.forgetLeases(ctx); err != nil {
		return nil, err
	}
	if err = s.forgetBindings(ctx); err != nil {
		return nil, err
	}
	err = s.each(ctx, "list idle lines", staleSQL, []any{last}, func(keys []string) error {
		stale = append(stale, keys...)
		return nil
	})
	return stale, err
}

// each calls f with the rows of a query of keys whose first argument is the one that they come after, a page at a time.
func (s *Store) each(ctx context.Context, what, text string, args []any, f func(keys []string) error) error {
	for from := ""; ; {
		keys, err := s.keys(ctx, what, text, append([]any{[]byte(from)}, args...)...)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := f(keys); err != nil {
			return err
		}
		from = keys[len(keys)-1]
	}
}

func (s *Store) forgetLines(ctx context.Context, last int64) error {
	return s.each(ctx, "list idle lines", idleSQL, []any{last}, func(keys []string) error {
		for some := range slices.Chunk(keys, mostAtOnce) {
			args := []any{last}
			for _, key := range some {
				args = append(args, []byte(key))
			}
			text := strings.Replace(forgetSQL, "%s", strings.Repeat(", ?", len(some)-1), 1)
			if _, err := s.write(ctx, "forget idle lines", "", text, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// forgetLeases removes those that have ended: none of them begins again.
func (s *Store) forgetLeases(ctx context.Context) error {
	for {
		ended := map[string][]string{}
		q := s.statement("list leases", "", overSQL)
		q.Keeps = false
		q.Begin = func() { clear(ended) }
		q.Row = func(scan func(to ...any) error) error {
			var key, id []byte
			err := scan(s.bytes(&key), s.bytes(&id))
			ended[string(key)] = append(ended[string(key)], string(id))
			return err
		}
		if _, err := s.conns.Run(ctx, q); err != nil || len(ended) == 0 {
			return err
		}
		for key, ids := range ended {
			if err := s.Purge(ctx, key, ids); err != nil {
				return err
			}
		}
	}
}

// List yields the lines whose keys begin with prefix, in the order of bytes.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		for from := prefix; ; {
			keys, err := s.keys(ctx, "list the lines", listSQL, []byte(from))
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

// keys runs a query of keys.
func (s *Store) keys(ctx context.Context, what, text string, args ...any) ([]string, error) {
	q := s.statement(what, "", text, args...)
	q.Keeps = false
	return s.column(ctx, q)
}

// column runs q, whose rows have one column of bytes.
func (s *Store) column(ctx context.Context, q *Statement) (all []string, err error) {
	q.Begin = func() { all = nil }
	q.Row = func(scan func(to ...any) error) error {
		var value []byte
		err := scan(s.bytes(&value))
		all = append(all, string(value))
		return err
	}
	_, err = s.conns.Run(ctx, q)
	return all, err
}

// bytes scans a column between {hex} and {/hex} into to.
func (s *Store) bytes(to *[]byte) any {
	if s.d.kind == postgres {
		return hexed{to}
	}
	return to
}

// hexed is a column of PostgreSQL that is asked for in hex: what bytes are as text depends on bytea_output, and not
// all drivers read both.
type hexed struct{ to *[]byte }

func (h hexed) Scan(v any) (err error) {
	var text sql.NullString
	if err = text.Scan(v); err == nil {
		*h.to, err = hex.DecodeString(text.String)
	}
	return err
}

// micros rounds up: a lease ends a moment late, and not early.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Microsecond - 1).UnixMicro()
}

// floorMicros rounds down: nobody arrives a moment too late.
func floorMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func ttl(l swaplock.Lease) int64 { return (l.TTL + time.Microsecond - 1).Microseconds() }

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
