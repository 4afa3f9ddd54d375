package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// queue reads a line for those who wait in it.
func (s *mysql) queue(ctx context.Context, key string) (q queue, err error) {
	var low, high, before int64
	var first driver.BusyError
	err = s.call(ctx, "read the line of", key, func(r *cells) error {
		if len(r.names) == 5 {
			var now int64
			var token, since sql.NullInt64
			var owner, note []byte
			err := r.scan(&now, &token, &since, &owner, &note)
			q, low, high, before = queue{now: serverTime(now)}, driver.RW, 1, 0
			first = driver.BusyError{Owner: string(owner), Note: string(note), Token: token.Int64, Since: time.UnixMicro(since.Int64)}
			return err
		}
		c := claim{span: 1}
		if err := r.scan(&c.token, &c.id, &c.capacity, &c.weight, &c.granted, &c.lingering, &c.expires); err != nil {
			return err
		}
		if err := c.check(key); err != nil {
			return err
		}
		left := c.left(q.now)
		before += c.weight
		if left <= 0 || c.granted == 0 && before <= c.capacity {
			q.stale = true
		}
		if c.token == first.Token {
			first.Left = left
			q.first = &first
		}
		low, high = min(low, c.capacity), max(high, c.capacity)
		q.rows = append(q.rows, queued{c.id, c.granted > 0, c.lingering, left})
		return nil
	}, "look", key)
	q.mixed = len(q.rows) > 1 && low != high
	return q, err
}

// serverTime is a reading of the server's clock.
func serverTime(us int64) instant { return instant{at: us, wall: us} }

// grantOf describes the grant of a claim.
func (s *mysql) grantOf(ctx context.Context, key, id string) (grant, bool, error) {
	g, granted, _, err := s.standing(ctx, key, id)
	return g, granted, err
}

// why says why a claim is not in line.
func (s *mysql) why(ctx context.Context, key, id string) (driver.ErrGone, error) {
	_, _, gone, err := s.standing(ctx, key, id)
	return gone, err
}

func (s *mysql) standing(ctx context.Context, key, id string) (g grant, granted bool, gone driver.ErrGone, err error) {
	err = s.call(ctx, "read the line of", key, func(r *cells) error {
		var mark, reason []byte
		var left sql.NullInt64
		g = grant{key: key, id: id}
		err := r.scan(&granted, &mark, &left, &g.mixed, &gone.Broken, &reason)
		gone.Reason = string(reason)
		g.mark, g.left = driver.Mark(mark), micros(left.Int64)
		return err
	}, "standing", key, id)
	return g, granted && err == nil, gone, err
}

// line reads all of one line.
func (s *mysql) line(ctx context.Context, key string) (driver.Line, bool, error) {
	if len(key) > driver.MaxKey {
		return driver.Line{Key: key}, false, nil
	}
	l, more, err := s.whole(ctx, "read the line of", key, key, nil)
	l.Key = key
	return l, more, err
}

// next reads all of the next line. The bounds are longer than keys may be: a key that
// long is above every other one that begins with the same bytes.
func (s *mysql) next(ctx context.Context, from, to []byte) (driver.Line, bool, error) {
	return s.whole(ctx, "list the lines", "", string(from), string(to))
}

func (s *mysql) whole(ctx context.Context, what, about, key string, to any) (l driver.Line, more bool, err error) {
	var rows []claim
	var now instant
	err = s.call(ctx, what, about, func(r *cells) error {
		if len(r.names) == 4 {
			var at int64
			var last sql.NullInt64
			var k, mark []byte
			err := r.scan(&at, &k, &last, &mark)
			now, rows = serverTime(at), nil
			l, more = driver.Line{Key: string(k), Last: last.Int64, Mark: driver.Mark(mark)}, false
			return err
		}
		var c claim
		more = true
		err := r.scan(&c.token, &c.span, &c.id, &c.capacity, &c.weight, &c.granted, &c.lingering, &c.expires, &c.since, &c.owner, &c.note)
		rows = append(rows, c)
		return err
	}, "whole", key, to)
	if err != nil {
		return driver.Line{}, false, err
	}
	return l, more, show(&l, rows, now)
}

// news reads what others have done to claims of this node.
func (s *mysql) news(ctx context.Context) (e effects, err error) {
	err = s.call(ctx, "read the news", "", func(r *cells) error {
		var isBroken, mixed bool
		var key, id string
		var text []byte
		var left int64
		if err := r.scan(&isBroken, &key, &id, &text, &left, &mixed); err != nil {
			return err
		}
		if isBroken {
			e.broken = append(e.broken, broken{key, id, driver.ErrGone{Broken: true, Reason: string(text)}})
		} else {
			e.granted = append(e.granted, grant{key: key, id: id, mark: driver.Mark(text), left: micros(left), mixed: mixed})
		}
		return nil
	}, "news", s.node)
	return e, err
}
