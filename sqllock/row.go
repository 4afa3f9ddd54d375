package sqllock

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// row is one row of what a database answers: about a claim, its line, or what a step has done.
// Its columns are found by their names, and null is zero.
type row struct {
	what                          string // the kind of the row; see the schema
	key, id                       string
	token, span, capacity, weight int64
	granted, lingering            bool
	expires, since                int64
	mark                          driver.Mark
	owner, note                   string
	now, last                     int64
	ahead, remains                int64
	standby                       string // the server that answered, if it takes no writes
}

// columns says where the columns of an answer belong.
var columns = map[string]func(r *row) sql.Scanner{
	"what":      func(r *row) sql.Scanner { return orZero[string]{&r.what} },
	"key":       func(r *row) sql.Scanner { return orZero[string]{&r.key} },
	"lock_key":  func(r *row) sql.Scanner { return orZero[string]{&r.key} }, // KEY is a word of MySQL's
	"id":        func(r *row) sql.Scanner { return orZero[string]{&r.id} },
	"token":     func(r *row) sql.Scanner { return orZero[int64]{&r.token} },
	"span":      func(r *row) sql.Scanner { return orZero[int64]{&r.span} },
	"capacity":  func(r *row) sql.Scanner { return orZero[int64]{&r.capacity} },
	"weight":    func(r *row) sql.Scanner { return orZero[int64]{&r.weight} },
	"granted":   func(r *row) sql.Scanner { return orZero[bool]{&r.granted} },
	"lingering": func(r *row) sql.Scanner { return orZero[bool]{&r.lingering} },
	"expires":   func(r *row) sql.Scanner { return orZero[int64]{&r.expires} },
	"since":     func(r *row) sql.Scanner { return orZero[int64]{&r.since} },
	"mark":      func(r *row) sql.Scanner { return orZero[driver.Mark]{&r.mark} },
	"owner":     func(r *row) sql.Scanner { return orZero[string]{&r.owner} },
	"note":      func(r *row) sql.Scanner { return orZero[string]{&r.note} },
	"now":       func(r *row) sql.Scanner { return orZero[int64]{&r.now} },
	"last":      func(r *row) sql.Scanner { return orZero[int64]{&r.last} },
	"ahead":     func(r *row) sql.Scanner { return orZero[int64]{&r.ahead} },
	"standby":   func(r *row) sql.Scanner { return orZero[string]{&r.standby} },
	"remains":   func(r *row) sql.Scanner { return orZero[int64]{&r.remains} },
}

// firstColumns are those that an answer begins with.
var firstColumns = []string{"what", "now", "note", "last"}

// orZero scans null as zero.
type orZero[T any] struct{ to *T }

func (z orZero[T]) Scan(v any) error {
	var n sql.Null[T]
	err := n.Scan(v)
	*z.to = n.V
	return err
}

// results are the rows that eachRow reads.
type results interface {
	Columns() ([]string, error)
	Next() bool
	Scan(to ...any) error
	NextResultSet() bool
	Err() error
	Close() error
}

// eachRow gives take each row of each result, and closes rows. take keeps nothing of a row
// but its values. key is the lock of which the rows are, for errors.
func eachRow(rows results, key string, take func(r *row) error) error {
	defer rows.Close()
	for {
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		var r row
		to := make([]any, len(names))
		for i, name := range names {
			place, ok := columns[name]
			if !ok || i == 0 && !slices.Contains(firstColumns, name) {
				return permanent(fmt.Errorf("the database answers columns %.200q, which this program does not know: %s",
					names, newDDL))
			}
			to[i] = place(&r)
		}
		for rows.Next() {
			if err := rows.Scan(to...); err != nil {
				return scanned(key, err)
			}
			if r.standby != "" {
				return standbyError(r.standby)
			}
			if err := take(&r); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			return cmp.Or(rows.Err(), rows.Close())
		}
	}
}

// scanned says that a row could not be read because no step has written it.
func scanned(key string, err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error") {
		return damaged(key, err)
	}
	return err
}

// micros is a time in µs, as databases keep it.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// gone says why a claim is not in line: its tombstone, in the columns granted (whether it
// was broken) and note (the reason).
func (r *row) gone() driver.GoneError {
	return driver.GoneError{Broken: r.granted, Reason: r.note}
}

// ticket is the ticket of the claim that r describes. What is in line decides; how it was
// asked for is the caller's.
func (r *row) ticket(c *driver.Claim) driver.Ticket {
	t := driver.Ticket{Claim: *c, Token: r.token, Granted: r.granted, Left: micros(r.remains)}
	t.Owner, t.Note, t.Span, t.Capacity, t.Weight = r.owner, r.note, r.span, r.capacity, r.weight
	if t.Granted {
		t.Mark = r.mark
	}
	return t
}

// grants reports whether r says that a claim of this process is granted.
func (r *row) grants() bool {
	return r.what == "grant" || r.what == "ticket" && (r.granted || r.span == 0)
}

// left returns how long the lease of a claim still lasts. What is beyond all numbers, in a row
// that was written by hand, is so on its own side.
func (r *row) left(now int64) time.Duration {
	return time.UnixMicro(r.expires).Sub(time.UnixMicro(now))
}
