package sqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// call calls a procedure of the schema, again if the server has undone it, and hands
// scan each row of each result, but for those about grants. It is one round trip.
//
// What scan has seen counts only if call returns nil: a procedure may fail at its end.
func (s *mysql) call(ctx context.Context, what, key string, scan func(*sql.Rows) error, procedure string, args ...any) error {
	_, err := s.step(ctx, what, key, scan, procedure, args...)
	return err
}

// step is call for procedures that may grant something.
func (s *mysql) step(ctx context.Context, what, key string, scan func(*sql.Rows) error, procedure string, args ...any) (effects, error) {
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
func (s *mysql) send(ctx context.Context, text, key string, scan func(*sql.Rows) error) (e effects, err error) {
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
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return e, err
	}
	defer rows.Close()
	for {
		columns, err := rows.Columns()
		if err != nil {
			return e, err
		}
		for rows.Next() {
			if columns[0] == "granted_id" {
				err = e.scanGrant(rows, key)
			} else {
				err = scan(rows)
			}
			if err != nil {
				return e, scanned(key, err)
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return e, err
	}
	return e, rows.Close()
}

func (e *effects) scanGrant(rows *sql.Rows, key string) error {
	g := grant{key: key}
	var mark []byte
	var left int64
	if err := rows.Scan(&g.id, &mark, &left, &g.mixed); err != nil {
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
