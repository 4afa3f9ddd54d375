package sqllock

import (
	"database/sql"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// summary describes a line whose expired claims were purged.
type summary struct {
	key      string
	n        int   // claims that were gone through
	weight   int64 // Σ of theirs
	min, max int64 // their capacities
	// part says that the rest of the line was not gone through, because somebody
	// waits and everybody has capacity RW: nobody fits behind.
	part   bool
	last   int64 // the largest token drawn
	mine   int64 // the token of the claim that was asked for, or 0
	mark   []byte
	markID string

	foreign bool  // somebody is on another clock
	soonest int64 // when the first lease ends; of use if nobody is
}

// refresh removes expired claims, grants what fits then, and summarizes the line. It reads
// the claims that hold the lock, and those that wait for a semaphore.
func (t *txn) refresh(key, id string) (summary, error) {
	for round := 0; ; round++ {
		v, err := t.summarize(key, id)
		switch {
		case err != nil:
			return v, err
		case v.foreign:
			err = t.exec(t.statements.adopt, []byte(key), t.now.clock, t.now.at, t.now.wall)
		case v.n > 0 && v.soonest <= t.now.at:
			err = t.purge(&v)
		default:
			return v, nil
		}
		if err != nil {
			return v, err
		}
		if round == 3 {
			return v, damaged(key, errors.New("what has expired cannot be removed"))
		}
	}
}

// summarize describes the line as it is.
func (t *txn) summarize(key, id string) (summary, error) {
	v := summary{key: key, soonest: lastToken, min: driver.RW, max: 1}
	var last, drawn, mine, ends sql.NullInt64
	var by sql.NullString
	err := t.rows(func(r *sql.Rows) error {
		return scanned(key, r.Scan(&last, &v.mark, &by, &drawn, &mine, &ends, &v.foreign))
	}, t.statements.summary, []byte(key), t.now.clock, id)
	if err != nil {
		return v, err
	}
	v.last, v.mine, v.markID = max(last.Int64, drawn.Int64), mine.Int64, by.String
	if ends.Valid {
		v.soonest = ends.Int64
	}
	err = t.scan(key, func(c *claim) bool {
		v.n++
		v.weight += c.weight
		v.min, v.max = min(v.min, c.capacity), max(v.max, c.capacity)
		v.foreign = v.foreign || c.clock != t.now.clock
		v.soonest = min(v.soonest, c.expires)
		if c.id == id {
			v.mine = c.token
		}
		v.part = c.granted == 0 && v.min == driver.RW && !v.foreign
		return !v.part
	})
	return v, err
}

// scan reads a line in order of arrival, until f returns false.
func (t *txn) scan(key string, f func(c *claim) bool) error {
	return t.rows(func(r *sql.Rows) error {
		c := claim{span: 1}
		if err := r.Scan(&c.token, &c.id, &c.capacity, &c.weight, &c.granted, &c.node,
			&c.clock, &c.expires, &c.until, &c.ttl); err != nil {
			return scanned(key, err)
		}
		if err := c.check(key); err != nil {
			return err
		}
		if !f(&c) {
			return errStop
		}
		return nil
	}, t.statements.scan, []byte(key))
}

// purge removes what has expired from the line, and grants what that lets in.
func (t *txn) purge(v *summary) error {
	n, err := t.changes(t.statements.purge, []byte(v.key), t.now.at)
	if err != nil || n == 0 {
		return err
	}
	t.touched = append(t.touched, v.key)
	return t.grantFitting(v)
}

// grantFitting grants what fits after somebody was removed. v is the line from before.
func (t *txn) grantFitting(v *summary) error {
	mixed := v.min != v.max
	if mixed {
		// It may have been the only one of its size.
		after, err := t.summarize(v.key, "")
		if err != nil {
			return err
		}
		mixed = after.min != after.max
	}
	a := admission{mixed: mixed}
	if err := t.scan(v.key, a.add); err != nil {
		return err
	}
	for _, r := range a.runs {
		err := t.exec(t.statements.grant, []byte(v.key), r.first, r.last, t.now.wall, t.node, v.mark)
		if err != nil {
			return err
		}
	}
	for _, c := range a.fit {
		if c.node != t.node {
			t.strangers = true
			continue
		}
		t.granted = append(t.granted, grant{v.key, c.id, driver.Mark(v.mark), c.left(t.now), mixed})
	}
	return nil
}
