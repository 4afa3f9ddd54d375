package foreign

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"time"
)

// Dialect is a kind of database.
type Dialect int

// The databases of ShedLock.
const (
	Postgres Dialect = iota
	MySQL            // and MariaDB
)

// ShedLockOptions change how the table is read. Nil and the zero value are ready for use.
type ShedLockOptions struct {
	Table string // shedlock if empty; it may have a schema before it
}

// Shed takes locks in ShedLock's table. Its methods may be called from many goroutines at once. Each is one
// statement, and Try may be two.
//
// Times are those of the database, in UTC, as ShedLock writes them with usingDbTime. Java programs that use their own
// clocks must have them set to the time of the database.
type Shed struct {
	db *sql.DB
	d  Dialect
	s  statements
}

type statements struct{ insert, take, renew, release string }

var table = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// ShedLock returns a lock on db, which stays the caller's. The table must be there. A key has at most 64 characters,
// as the column has.
func ShedLock(db *sql.DB, d Dialect, o *ShedLockOptions) *Shed {
	name := "shedlock"
	if o != nil && o.Table != "" {
		name = o.Table
	}
	if !table.MatchString(name) {
		panic(fmt.Sprintf("foreign: %q is not the name of a table", name))
	}
	s := statements{
		insert: `INSERT INTO %s (name, lock_until, locked_at, locked_by)
			VALUES ($1, timezone('utc', clock_timestamp()) + $2 * interval '1 microsecond',
				timezone('utc', clock_timestamp()), $3)
			ON CONFLICT (name) DO NOTHING`,
		take: `UPDATE %s SET lock_until = timezone('utc', clock_timestamp()) + $2 * interval '1 microsecond',
				locked_at = timezone('utc', clock_timestamp()), locked_by = $3
			WHERE name = $1 AND (lock_until <= timezone('utc', clock_timestamp()) OR locked_by = $3)`,
		renew: `UPDATE %s SET lock_until = timezone('utc', clock_timestamp()) + $2 * interval '1 microsecond'
			WHERE name = $1 AND locked_by = $3 AND lock_until > timezone('utc', clock_timestamp())`,
		release: `UPDATE %s SET lock_until = timezone('utc', clock_timestamp())
			WHERE name = $1 AND locked_by = $2 AND lock_until > timezone('utc', clock_timestamp())`,
	}
	if d == MySQL {
		s = statements{
			insert: `INSERT IGNORE INTO %s (name, lock_until, locked_at, locked_by)
				VALUES (?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), ?)`,
			take: `UPDATE %s SET lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)),
					locked_at = UTC_TIMESTAMP(3), locked_by = ?
				WHERE name = ? AND (lock_until <= UTC_TIMESTAMP(3) OR locked_by = ?)`,
			renew: `UPDATE %s SET lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), locked_at = locked_at
				WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(3)`,
			release: `UPDATE %s SET lock_until = UTC_TIMESTAMP(3)
				WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(3)`,
		}
	}
	for _, q := range []*string{&s.insert, &s.take, &s.renew, &s.release} {
		*q = fmt.Sprintf(*q, name)
	}
	return &Shed{db, d, s}
}

// Name returns "ShedLock".
func (l *Shed) Name() string { return "ShedLock" }

// Close does nothing.
func (l *Shed) Close() error { return nil }

// Try takes the lock of key for ttl, or starts its lease again if id holds it.
func (l *Shed) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	us := microseconds(ttl)
	args := []any{key, us, id}
	if l.d == MySQL {
		args = []any{us, id, key, id}
	}
	if took, err := l.exec(ctx, l.s.take, args...); took || err != nil {
		return took, err
	}
	return l.exec(ctx, l.s.insert, key, us, id)
}

// Renew starts the lease of a lock that id holds again.
func (l *Shed) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	us := microseconds(ttl)
	if l.d == MySQL {
		return l.exec(ctx, l.s.renew, us, key, id)
	}
	return l.exec(ctx, l.s.renew, key, us, id)
}

// Release ends the lease of a lock that id holds. The row stays, as with ShedLock.
func (l *Shed) Release(ctx context.Context, key, id string) (bool, error) {
	return l.exec(ctx, l.s.release, key, id)
}

// exec reports whether the statement has changed a row.
func (l *Shed) exec(ctx context.Context, statement string, args ...any) (bool, error) {
	r, err := l.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// microseconds rounds up to milliseconds, which ShedLock's columns keep.
func microseconds(d time.Duration) int64 {
	return int64((d+time.Millisecond-1)/time.Millisecond) * 1000
}
