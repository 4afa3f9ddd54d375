package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// query asks a statement of d.
type query func(ctx context.Context, d *database) (*sql.Rows, error)

// read runs a statement that only reads.
func (s *sqlite) read(ctx context.Context, what, key string, begin func(), scan func(*sql.Rows) error,
	ask query,
) error {
	err := s.on(ctx, func(d *database) error {
		err := retry(ctx, func() error {
			begin() // anew, if it was cut short
			rows, err := ask(s.statementContext(ctx), d)
			if err != nil {
				return err
			}
			return each(rows, scan)
		})
		if err != nil {
			return err
		}
		return s.check(ctx, d)
	})
	if err != nil && key != "" {
		what = fmt.Sprintf("%s %q", what, key)
	}
	return s.fail(what, err)
}

// queue reads a line for those who wait in it.
func (s *sqlite) queue(ctx context.Context, key string) (q queue, err error) {
	var low, high, before int64
	err = s.read(ctx, "read the line of", key, func() {
		// Before the statement: a claim that ends while it runs is seen next time.
		q, low, high, before = queue{now: readClock()}, driver.RW, 1, 0
	}, func(r *sql.Rows) error {
		var c claim
		var owner, note sql.NullString
		var since sql.NullInt64
		if err := r.Scan(&c.token, &c.id, &c.capacity, &c.weight, &c.granted, &c.lingering,
			&c.clock, &c.expires, &c.until, &c.ttl, &since, &owner, &note); err != nil {
			return scanned(key, err)
		}
		left := c.left(q.now)
		before += c.weight
		if left <= 0 || c.clock != q.now.clock || c.granted == 0 && before <= c.capacity {
			q.stale = true
		}
		if owner.Valid && left > 0 {
			q.first = &driver.BusyError{
				Owner: owner.String, Note: note.String, Token: c.token, Since: time.UnixMicro(since.Int64), Left: left,
			}
		}
		low, high = min(low, c.capacity), max(high, c.capacity)
		q.rows = append(q.rows, queued{c.id, c.granted > 0, c.lingering, left})
		return nil
	}, func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.queue.QueryContext(ctx, []byte(key))
	})
	q.mixed = len(q.rows) > 1 && low != high
	return q, err
}

// grantOf describes the grant of a claim.
func (s *sqlite) grantOf(ctx context.Context, key, id string) (g grant, ok bool, err error) {
	e, err := s.readNews(ctx, func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.grantOf.QueryContext(ctx, []byte(key), id)
	})
	if err != nil || len(e.granted) == 0 {
		return grant{}, false, err
	}
	return e.granted[0], true, nil
}

// news reads what other processes have done to claims of this node.
func (s *sqlite) news(ctx context.Context) (effects, error) {
	return s.readNews(ctx, func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.news.QueryContext(ctx, d.node)
	})
}

func (s *sqlite) readNews(ctx context.Context, ask query) (e effects, err error) {
	err = s.read(ctx, "read the news", "", func() { e = effects{} }, func(r *sql.Rows) error {
		var kind int
		var id string
		var key, text []byte
		var l lease
		var mixed bool
		if err := r.Scan(&kind, &key, &id, &text, &l.clock, &l.expires, &l.until, &l.ttl, &mixed); err != nil {
			return scanned(string(key), err)
		}
		if kind == 0 {
			e.granted = append(e.granted, grant{
				key: string(key), id: id, mark: driver.Mark(text), left: l.left(readClock()), mixed: mixed,
			})
		} else {
			e.broken = append(e.broken, broken{string(key), id, driver.ErrGone{Broken: true, Reason: string(text)}})
		}
		return nil
	}, ask)
	return e, err
}

// why says why a claim is not in line.
func (s *sqlite) why(ctx context.Context, key, id string) (gone driver.ErrGone, err error) {
	now := readClock()
	err = s.read(ctx, "read the line of", key, func() { gone = driver.ErrGone{} }, func(r *sql.Rows) error {
		return scanned(key, r.Scan(&gone.Broken, &gone.Reason))
	}, func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.tombstoneRead.QueryContext(ctx, []byte(key), id, now.clock, now.at, now.wall)
	})
	return gone, err
}

// line reads all of one line.
func (s *sqlite) line(ctx context.Context, key string) (driver.Line, bool, error) {
	return s.whole(ctx, "read the line of", key, func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.line.QueryContext(ctx, []byte(key))
	})
}

// next reads all of the next line.
func (s *sqlite) next(ctx context.Context, from, to []byte) (driver.Line, bool, error) {
	return s.whole(ctx, "list the lines", "", func(ctx context.Context, d *database) (*sql.Rows, error) {
		return d.next.QueryContext(ctx, from, to)
	})
}

func (s *sqlite) whole(ctx context.Context, what, key string, ask query) (l driver.Line, more bool, err error) {
	var rows []claim
	var now instant
	err = s.read(ctx, what, key, func() {
		l, rows, more, now = driver.Line{Key: key}, nil, false, readClock()
	}, func(r *sql.Rows) error {
		var c claim
		var k, mark []byte
		var last, token sql.NullInt64
		var id, owner, note sql.NullString
		var n [10]sql.NullInt64
		if err := r.Scan(&k, &last, &mark, &token, &n[0], &id, &n[1], &n[2], &n[3], &n[4],
			&n[5], &n[6], &n[7], &n[8], &n[9], &owner, &note); err != nil {
			return scanned(key, err)
		}
		l.Key, l.Last, l.Mark = string(k), max(l.Last, last.Int64), driver.Mark(mark)
		if !token.Valid {
			return nil
		}
		more = true
		c = claim{
			token: token.Int64, span: n[0].Int64, id: id.String, capacity: n[1].Int64, weight: n[2].Int64,
			granted: n[3].Int64, lingering: n[4].Int64 != 0, since: n[9].Int64, owner: owner.String, note: note.String,
			lease: lease{clock: n[5].Int64, expires: n[6].Int64, until: n[7].Int64, ttl: n[8].Int64},
		}
		rows = append(rows, c)
		return nil
	}, ask)
	if err != nil {
		return driver.Line{}, false, err
	}
	return l, more, show(&l, rows, now)
}
