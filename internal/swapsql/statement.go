package swapsql

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// Conns runs statements of a Store, each in a transaction of its own. It repeats one that is known to
// have had no effect.
type Conns interface {
	// Run returns how many rows st has changed.
	Run(ctx context.Context, st *Statement) (changed int64, err error)
}

// Statement is one statement.
type Statement struct {
	What, Key string // for errors: what the statement does, and to which key, if to one
	Keeps     bool   // it keeps or ends claims, or serves who waits: it may not wait for the program's connections
	Writes    bool
	Text      string
	Args      []any
	// Rows is told that rows follow, also of a repeated statement, before Row takes them.
	Begin func()
	Row   func(scan func(to ...any) error) error // nil: there are no rows
	// Inserted takes what MariaDB and MySQL return as LAST_INSERT_ID.
	Inserted *int64
	// A file may be replaced by another one. Opening is set to the number of that which the statement ran on, from
	// 1, also before Begin; on others than Only it changes nothing, unless Only is 0. On servers both are 0.
	Opening, Only int64
	Clock         int64 // what {clock} in Text was, once the statement has succeeded
	Tells         bool  // other processes have news
	// Then are done in the same transaction, if the statement has changed something. Only SQLite is asked for
	// that: it has no network between the statements.
	Then []*Statement

	// Resent is set by Run: the statement was sent again after a connection broke, and may have been done
	// before.
	Resent bool
}

// Result holds the response of a database to a statement.
type Result struct {
	Changed  int64 // how many rows were changed or returned
	inserted int64
	rows     [][]any
}

// Execer is a connection, a transaction, or a prepared statement, which ignores the text.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// send runs st over conn. It calls none of the functions of st.
func (st *Statement) send(ctx context.Context, conn *sql.Conn, d *Dialect) (*Result, error) {
	text, args := d.bind(st.Text, st.Args)
	r, err := st.Send(ctx, conn, text, args)
	if err != nil && d.duplicate != "" && d.code(err) == d.duplicate {
		return &Result{}, nil
	}
	return r, err
}

// Send runs st as that text with those arguments. It calls none of the functions of st.
func (st *Statement) Send(ctx context.Context, on Execer, text string, args []any) (*Result, error) {
	if st.Row != nil {
		return query(ctx, on, text, args)
	}
	res, err := on.ExecContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if st.Inserted != nil {
		if r.inserted, err = res.LastInsertId(); err != nil {
			return nil, err
		}
	}
	r.Changed, err = res.RowsAffected()
	return r, err
}

func query(ctx context.Context, on Execer, text string, args []any) (*Result, error) {
	rows, err := on.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	r := &Result{}
	to := make([]any, len(columns))
	for err == nil && rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		err = rows.Scan(to...)
		r.rows = append(r.rows, values)
	}
	r.Changed = int64(len(r.rows))
	if err = cmp.Or(err, rows.Err()); errors.Is(err, sqldriver.ErrBadConn) {
		// It was sent, so it must not be taken for undone.
		err = fmt.Errorf("the connection broke before the answer was there: %v", err)
	}
	return r, cmp.Or(err, rows.Close())
}

// Take calls the functions of st with r, and returns how many rows were changed or returned.
func (st *Statement) Take(r *Result) (int64, error) {
	if st.Inserted != nil {
		*st.Inserted = r.inserted
	}
	if st.Begin != nil {
		st.Begin()
	}
	for _, values := range r.rows {
		if err := st.Row(func(to ...any) error { return scan(values, to) }); err != nil {
			return 0, err
		}
	}
	return r.Changed, nil
}

// scan is Scan of a row with those values.
func scan(values, to []any) (err error) {
	if len(values) != len(to) {
		return driver.Permanent(fmt.Errorf("the database answers %d columns, not %d", len(values), len(to)))
	}
	for i, v := range values {
		switch d := to[i].(type) {
		case sql.Scanner:
			err = d.Scan(v)
		case *int64:
			err = scanInto(d, v)
		case *int:
			err = scanInto(d, v)
		case *bool:
			err = scanInto(d, v)
		case *string:
			err = scanInto(d, v)
		case *[]byte:
			err = scanInto(d, v)
		default:
			err = fmt.Errorf("swapsql: no scan into %T", d)
		}
		if err != nil {
			return driver.Permanent(fmt.Errorf("the rows of the lock are damaged (column %d: %w): delete its rows "+
				"from all tables, then try again", i, err))
		}
	}
	return nil
}

// scanInto takes NULL for zero.
func scanInto[T any](to *T, v any) error {
	if same, ok := v.(T); ok {
		*to = same
		return nil
	}
	var n sql.Null[T]
	err := n.Scan(v)
	*to = n.V
	return err
}
