package foreign

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
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
	server
	d Dialect
	s statements
}

// maxName is how many characters the column of names has.
const maxName = 64

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
		// A row counts only if it changes, so lock_until grows also within a millisecond.
		s = statements{
			insert: `INSERT IGNORE INTO %s (name, lock_until, locked_at, locked_by)
				VALUES (?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), ?)`,
			take: `UPDATE %s SET lock_until = GREATEST(TIMESTAMPADD(MICROSECOND, 1000, lock_until),
						TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3))),
					locked_at = UTC_TIMESTAMP(3), locked_by = ?
				WHERE name = ? AND (lock_until <= UTC_TIMESTAMP(3) OR locked_by = ?)`,
			renew: `UPDATE %s SET lock_until = GREATEST(TIMESTAMPADD(MICROSECOND, 1000, lock_until),
					TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3))), locked_at = locked_at
				WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(3)`,
			release: `UPDATE %s SET lock_until = UTC_TIMESTAMP(3)
				WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(3)`,
		}
	}
	for _, q := range []*string{&s.insert, &s.take, &s.renew, &s.release} {
		*q = fmt.Sprintf(*q, name)
	}
	return &Shed{server{"ShedLock", db, replies(d, name)}, d, s}
}

// replies are the errors of a database with ShedLock's table of that name.
func replies(d Dialect, table string) reply.Table {
	missing := reply.Advice{
		Verdict: reply.Lasting, Codes: "42P01 42703 3F000 1146 1054", Text: fmt.Sprintf("the table %s is missing, or "+
			"has other columns: create it as ShedLock's documentation says", table),
	}
	right := reply.Advice{
		Verdict: reply.Lasting, Codes: "42501 1044 1142 1143", Text: fmt.Sprintf("a right is missing: GRANT SELECT, "+
			"INSERT, UPDATE ON %s; MariaDB and MySQL say the same of a table that does not exist", table),
	}
	if d == MySQL {
		return reply.MySQL.With(missing, right)
	}
	return reply.Postgres.With(missing, right, reply.Advice{Verdict: reply.Lasting, Codes: "22001", Text: longKey})
}

const longKey = "the key is longer than the column of names"

// Name returns "ShedLock".
func (l *Shed) Name() string { return l.format }

// Close does nothing.
func (l *Shed) Close() error { return nil }

// Try takes the lock of key for ttl, or starts its lease again if id holds it.
func (l *Shed) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	us := microseconds(ttl)
	args := []any{key, us, id}
	if l.d == MySQL {
		args = []any{us, id, key, id}
		if utf8.RuneCountInString(key) > maxName { // INSERT IGNORE would cut it, and no Renew find it again
			return false, reply.Lasting.Of(fmt.Errorf("ShedLock: cannot take %q, %s", key, longKey))
		}
	}
	if took, err := l.exec(ctx, "take", key, l.s.take, args...); took || err != nil {
		return took, err
	}
	return l.exec(ctx, "take", key, l.s.insert, key, us, id)
}

// Renew starts the lease of a lock that id holds again.
func (l *Shed) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	us := microseconds(ttl)
	if l.d == MySQL {
		return l.exec(ctx, "renew", key, l.s.renew, us, key, id)
	}
	return l.exec(ctx, "renew", key, l.s.renew, key, us, id)
}

// Release ends the lease of a lock that id holds. The row stays, as with ShedLock.
func (l *Shed) Release(ctx context.Context, key, id string) (bool, error) {
	return l.exec(ctx, "release", key, l.s.release, key, id)
}

// exec reports whether the statement has changed a row. What is not sent over an old connection is sent over another,
// as a *sql.DB does.
func (l *Shed) exec(ctx context.Context, doing, key, statement string, args ...any) (bool, error) {
	changed, err := l.send(ctx, statement, args)
	resent := errors.Is(err, driver.ErrBadConn)
	for tries := 1; errors.Is(err, driver.ErrBadConn) && tries < 3; tries++ {
		changed, err = l.send(ctx, statement, args)
	}
	if err == nil {
		return changed, nil
	}
	if err = l.failed(ctx, doing, key, err); resent {
		err = driverutil.Unsettled(err) // lib/pq says ErrBadConn also of a statement whose answer is lost
	}
	return false, err
}

// send sends a statement once. If it fails, its connection is not used again: after a failover without a cut that may
// lead to the old primary.
func (l *Shed) send(ctx context.Context, statement string, args []any) (changed bool, err error) {
	c, err := l.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	r, err := c.ExecContext(ctx, statement, args...)
	if err != nil {
		swapsql.CloseConn(c)
		return false, err
	}
	defer c.Close()
	n, err := r.RowsAffected()
	return n > 0, err
}

// microseconds rounds up to milliseconds, which ShedLock's columns keep.
func microseconds(d time.Duration) int64 {
	return int64((d+time.Millisecond-1)/time.Millisecond) * 1000
}
