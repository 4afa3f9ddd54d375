package sqllock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// read runs a statement that only reads.
func (s *sqlite) read(ctx context.Context, what, key string, begin func(), take func(r *row) error, name string,
	args func(d *database) []any,
) error {
	err := s.on(ctx, false, func(d *database) error {
		err := retryBusy(ctx, func() error {
			begin() // anew, if it was cut short
			rows, err := d.stmts[name].QueryContext(s.statementContext(ctx), args(d)...)
			if err != nil {
				return err
			}
			return eachRow(rows, key, take)
		})
		if err != nil {
			return err
		}
		return s.check(ctx, d)
	})
	return s.fail(named(what, key), err)
}

func (s *sqlite) snapshot(ctx context.Context, what, key, name string, args ...any) (snapshot, effects, error) {
	var l snapshot
	err := s.read(ctx, what, key, func() {
		// Before the statement: a claim that ends while it runs is seen next time.
		l = snapshot{key: key, now: readClock()}
	}, func(r *row) error { return l.add(r) }, name, func(*database) []any { return args })
	return l, effects{}, err
}

// line reads one line.
func (s *sqlite) line(ctx context.Context, key string) (snapshot, effects, error) {
	return s.snapshot(ctx, "read the line of", key, "line", []byte(key))
}

// next reads the next line with claims.
func (s *sqlite) next(ctx context.Context, from, to []byte) (snapshot, effects, error) {
	return s.snapshot(ctx, "list the lines", "", "next", from, to)
}

// standing describes the grant of a claim, or says why there is none.
func (s *sqlite) standing(ctx context.Context, key, id string) (g *grant, gone driver.ErrGone, err error) {
	now := readClock()
	err = s.read(ctx, "read the line of", key, func() { g, gone = nil, driver.ErrGone{} }, func(r *row) error {
		if r.what == "grant" {
			granted := r.grant(key, now)
			g = &granted
		} else {
			gone = r.gone()
		}
		return nil
	}, "standing", func(*database) []any { return []any{[]byte(key), id, now.clock, now.at, now.wall} })
	return g, gone, err
}

// news reads what other processes have done to claims of this node.
func (s *sqlite) news(ctx context.Context) (e effects, err error) {
	err = s.read(ctx, "read the news", "", func() { e = effects{} }, func(r *row) error {
		if r.what == "grant" {
			e.granted = append(e.granted, r.grant(r.key, readClock()))
		} else {
			e.broken = append(e.broken, broken{driver.ClaimRef{Key: r.key, ID: r.id}, r.gone()})
		}
		return nil
	}, "news", func(d *database) []any { return []any{d.node} })
	return e, err
}
