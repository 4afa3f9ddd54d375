package sqllock

import (
	"context"
	"database/sql"
	"time"
)

const (
	// One Enter in so many sweeps so many lines: two lines for each that an Enter
	// can have made, so the sweep keeps up.
	sweepEach, sweepLines = 256, 512
	// memory is how long the clock must have overtaken a counter before it is
	// forgotten: until then a clock that was set back could draw a token again.
	memory = 24 * time.Hour
)

// sweepSometimes forgets some idle lines, in a transaction of its own. That it
// fails is of no matter: the next one does it.
func (s *sqlite) sweepSometimes(ctx context.Context) effects {
	// The first phase is the node's, so that processes that enter once and end, as
	// commands do, sweep as often as others.
	if (s.enters.Add(1)+uint32(s.node))%sweepEach != 0 {
		return effects{}
	}
	e, _ := s.transact(ctx, "sweep", "", func(t *txn) error { return t.sweep() })
	return e
}

// sweep goes through the next lines, from where the last sweep of any process has
// ended.
func (t *txn) sweep() error {
	var after, end []byte
	if err := t.rows(func(r *sql.Rows) error { return r.Scan(&after) }, t.statements.sweepRead); err != nil {
		return err
	}
	if after == nil {
		after = []byte{0}
	}
	err := t.rows(func(r *sql.Rows) error { return r.Scan(&end) }, t.statements.sweepRange, after, sweepLines)
	if err != nil {
		return err
	}
	if end == nil {
		return t.exec(t.statements.sweepWrite, nil)
	}
	// Claims whose processes have died, in lines that nobody has asked for since.
	var dead []string
	err = t.rows(func(r *sql.Rows) error {
		var key []byte
		err := r.Scan(&key)
		dead = append(dead, string(key))
		return err
	}, t.statements.sweepDead, after, end, t.now.clock, t.now.at, sweepLines)
	if err != nil {
		return err
	}
	for _, key := range dead {
		if _, err := t.refresh(key, ""); err != nil {
			return err
		}
	}
	if err := t.exec(t.statements.sweepIdle, after, end, t.now.wall-memory.Microseconds()); err != nil {
		return err
	}
	return t.exec(t.statements.sweepWrite, end)
}
