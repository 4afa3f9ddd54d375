package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// each calls scan for each row of a statement.
func (p *postgres) each(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := p.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// read runs a statement that only reads; begin is called before each attempt.
func (p *postgres) read(ctx context.Context, what, key string, begin func(), scan func(*sql.Rows) error, query string, args ...any) error {
	err := p.retry(ctx, func() error {
		begin()
		return p.each(ctx, scan, query, args...)
	})
	if err == nil {
		return nil
	}
	return p.fail(named(what, key), err)
}

// named says what was done to which key, for errors.
func named(what, key string) string {
	if key == "" {
		return what
	}
	return fmt.Sprintf("%s %q", what, key)
}

// queue reads a line for those who wait in it.
func (p *postgres) queue(ctx context.Context, key string) (q queue, err error) {
	var low, high, before int64
	err = p.read(ctx, "read the line of", key, func() {
		q, low, high, before = queue{}, driver.RW, 1, 0
	}, func(r *sql.Rows) error {
		var c claim
		var now int64
		var id, owner, note []byte
		var since sql.NullInt64
		if err := r.Scan(&now, &c.token, &id, &c.capacity, &c.weight, &c.granted, &c.lingering,
			&c.expires, &since, &owner, &note); err != nil {
			return err
		}
		q.now = serverTime(now)
		left := c.left(q.now)
		before += c.weight
		if left <= 0 || c.granted == 0 && before <= c.capacity {
			q.stale = true
		}
		if since.Valid && left > 0 {
			q.first = &driver.BusyError{Owner: string(owner), Note: string(note), Token: c.token, Since: time.UnixMicro(since.Int64), Left: left}
		}
		low, high = min(low, c.capacity), max(high, c.capacity)
		q.rows = append(q.rows, queued{string(id), c.granted > 0, c.lingering, left})
		return nil
	}, p.q["look"], []byte(key))
	q.mixed = len(q.rows) > 1 && low != high
	return q, err
}

// grantOf describes the grant of a claim.
func (p *postgres) grantOf(ctx context.Context, key, id string) (g grant, ok bool, err error) {
	e, err := p.tidings(ctx, "grant_of", []byte(key), []byte(id))
	if err != nil || len(e.granted) == 0 {
		return grant{}, false, err
	}
	return e.granted[0], true, nil
}

func (p *postgres) tidings(ctx context.Context, query string, args ...any) (e effects, err error) {
	err = p.read(ctx, "read the news", "", func() { e = effects{} }, func(r *sql.Rows) error {
		var kind, left int64
		var key, id, text []byte
		var mixed bool
		if err := r.Scan(&kind, &key, &id, &text, &left, &mixed); err != nil {
			return err
		}
		if kind == 0 {
			e.granted = append(e.granted, grant{key: string(key), id: string(id), mark: driver.Mark(text), left: time.Duration(left) * time.Microsecond, mixed: mixed})
		} else {
			e.broken = append(e.broken, broken{string(key), string(id), driver.ErrGone{Broken: true, Reason: string(text)}})
		}
		return nil
	}, p.q[query], args...)
	return e, err
}

// why says why a claim is not in line.
func (p *postgres) why(ctx context.Context, key, id string) (gone driver.ErrGone, err error) {
	err = p.read(ctx, "read the line of", key, func() { gone = driver.ErrGone{} }, func(r *sql.Rows) error {
		var reason []byte
		err := r.Scan(&gone.Broken, &reason)
		gone.Reason = string(reason)
		return err
	}, p.q["rest"], []byte(key), []byte(id))
	return gone, err
}

// line reads all of one line.
func (p *postgres) line(ctx context.Context, key string) (driver.Line, bool, error) {
	return p.whole(ctx, "read the line of", key, p.q["whole"], []byte(key))
}

// next reads all of the next line.
func (p *postgres) next(ctx context.Context, from, to []byte) (driver.Line, bool, error) {
	return p.whole(ctx, "list the lines", "", p.q["next"], from, to)
}

func (p *postgres) whole(ctx context.Context, what, key, query string, args ...any) (l driver.Line, more bool, err error) {
	var claims []claim
	var now int64
	err = p.read(ctx, what, key, func() {
		l, claims, more, now = driver.Line{Key: key}, nil, false, 0
	}, func(r *sql.Rows) error {
		var k, mark, id, owner, note []byte
		var last, token sql.NullInt64
		var n [6]sql.NullInt64
		var lingering sql.NullBool
		if err := r.Scan(&now, &k, &last, &mark, &token, &n[0], &id, &n[1], &n[2], &n[3], &lingering,
			&n[4], &n[5], &owner, &note); err != nil {
			return err
		}
		l.Key, l.Last, l.Mark = string(k), max(l.Last, last.Int64), driver.Mark(mark)
		if !token.Valid {
			return nil
		}
		more = true
		claims = append(claims, claim{
			token: token.Int64, span: n[0].Int64, id: string(id), capacity: n[1].Int64, weight: n[2].Int64,
			granted: n[3].Int64, lingering: lingering.Bool, since: n[5].Int64, owner: string(owner), note: string(note),
			lease: lease{expires: n[4].Int64},
		})
		return nil
	}, query, args...)
	if err != nil {
		return driver.Line{}, false, err
	}
	return l, more, show(&l, claims, serverTime(now))
}
