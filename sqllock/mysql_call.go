package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// call calls a procedure of the schema, again if the server has undone it, and hands
// scan each row of each result, but for those about grants. It is one round trip.
//
// What scan has seen counts only if call returns nil: a procedure may fail at its end.
func (s *mysql) call(ctx context.Context, what, key string, scan func(*cells) error, procedure string, args ...any) error {
	_, err := s.step(ctx, what, key, scan, procedure, args...)
	return err
}

// step is call for procedures that may grant something.
func (s *mysql) step(ctx context.Context, what, key string, scan func(*cells) error, procedure string, args ...any) (effects, error) {
	text := s.text(procedure, args)
	var e effects
	err := retryMySQL(ctx, func() (err error) {
		if err = ctx.Err(); err == nil {
			e, err = s.send(ctx, text, key, scan)
		}
		return err
	})
	if err == nil {
		return e, nil
	}
	if key != "" {
		what = fmt.Sprintf("%s %q", what, key)
		// It may have happened: those who wait in this line have to look.
		return effects{touched: []string{key}}, s.fail(what, err)
	}
	return effects{}, s.fail(what, err)
}

// send sends one statement. The procedures roll back when they fail, also when somebody
// kills their statement; but a connection that went back into the pool with a transaction
// open would keep a line locked for as long as nobody uses it, so after an error that is
// not known to have ended the transaction it does not go back.
func (s *mysql) send(ctx context.Context, text, key string, scan func(*cells) error) (e effects, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return e, err
	}
	defer conn.Close()
	defer func() {
		if err != nil && !undone(err) {
			discard(conn)
		}
	}()
	take := func(row *cells) error {
		if len(row.names) > 0 && row.names[0] == "granted_id" {
			return e.scanGrant(row, key)
		}
		return scan(row)
	}
	// The driver is asked past Rows of database/sql.
	if !s.slow.Load() {
		err := conn.Raw(func(raw any) error {
			rows, err := queryDriver(ctx, raw, text, nil)
			if err != nil {
				return err
			}
			err = cmp.Or(takeSets(rows, take), rows.Close())
			if errors.Is(err, sqldriver.ErrBadConn) {
				// It was sent, whatever the driver means by that.
				err = fmt.Errorf("the connection broke before the answer was there: %v", err)
			}
			return err
		})
		if !errors.Is(err, sqldriver.ErrSkip) {
			return e, scanned(key, err)
		}
		s.slow.Store(true)
	}
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return e, err
	}
	return e, scanned(key, cmp.Or(takeRows(rows, take), rows.Close()))
}

// takeSets reads all rows of all results.
func takeSets(rows sqldriver.Rows, take func(*cells) error) error {
	for {
		row := cells{names: rows.Columns()}
		row.values = make([]sqldriver.Value, len(row.names))
		for {
			if err := rows.Next(row.values); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
			if err := take(&row); err != nil {
				return err
			}
		}
		more, ok := rows.(sqldriver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return nil
		}
		if err := more.NextResultSet(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// takeRows is takeSets by way of database/sql.
func takeRows(rows *sql.Rows, take func(*cells) error) (err error) {
	for {
		var row cells
		if row.names, err = rows.Columns(); err != nil {
			return err
		}
		row.values = make([]sqldriver.Value, len(row.names))
		found, pointers := make([]any, len(row.names)), make([]any, len(row.names))
		for i := range found {
			pointers[i] = &found[i]
		}
		for rows.Next() {
			if err := rows.Scan(pointers...); err != nil {
				return err
			}
			for i, v := range found {
				row.values[i] = v
			}
			if err := take(&row); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}

func (e *effects) scanGrant(row *cells, key string) error {
	g := grant{key: key}
	var mark []byte
	var left int64
	if err := row.scan(&g.id, &mark, &left, &g.mixed); err != nil {
		return err
	}
	g.mark, g.left = driver.Mark(mark), micros(left)
	e.granted = append(e.granted, g)
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// text writes a call out. Bytes are hexadecimal and numbers decimal, so there is nothing
// in it that a character set, an SQL mode or a key could turn into something else.
func (s *mysql) text(procedure string, args []any) string {
	var b strings.Builder
	b.WriteString("CALL " + s.names.prefix + "v1_" + procedure + "(")
	for i, arg := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		switch a := arg.(type) {
		case string:
			b.WriteString("X'" + hex.EncodeToString([]byte(a)) + "'")
		case []byte:
			b.WriteString("X'" + hex.EncodeToString(a) + "'")
		case int64:
			b.WriteString(strconv.FormatInt(a, 10))
		case time.Duration:
			b.WriteString(strconv.FormatInt(a.Microseconds(), 10))
		case bool:
			if a {
				b.WriteByte('1')
			} else {
				b.WriteByte('0')
			}
		case nil:
			b.WriteString("NULL")
		default:
			panic(fmt.Sprintf("sqllock: no literal for %T", arg))
		}
	}
	b.WriteByte(')')
	return b.String()
}

// errShort says that a procedure gave no answer, which it always does.
var errShort = errors.New("the procedure gave no answer: run the DDL of this version again")
