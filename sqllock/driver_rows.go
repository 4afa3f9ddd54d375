package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// results are the rows that eachRow reads: *sql.Rows, or driverRows.
type results interface {
	Columns() ([]string, error)
	Next() bool
	Scan(to ...any) error
	NextResultSet() bool
	Err() error
	Close() error
}

// queryRows sends a query, gives read its rows, and closes them. Without params it asks the driver itself
// within Conn.Raw. A driver may panic at an answer that it cannot read, as Galera writes of a call that it
// undoes and tries again by itself. Package database/sql closes the connection after a panic within Raw
// alone; after one within QueryContext it keeps a lock on the connection forever, and a place of the pool.
func queryRows(ctx context.Context, conn *sql.Conn, text string, params []any, read func(results) error) (err error) {
	if len(params) == 0 {
		if err = queryRaw(ctx, conn, text, read); err != sqldriver.ErrSkip {
			return err
		}
	}
	rows, err := conn.QueryContext(ctx, text, params...)
	if err != nil {
		return err
	}
	return read(rows)
}

// queryRaw returns ErrSkip if the driver has no short way for a query.
func queryRaw(ctx context.Context, conn *sql.Conn, text string, read func(results) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver cannot read the answer of the server: %v", p)
		}
	}()
	return conn.Raw(func(c any) error {
		q, ok := c.(sqldriver.QueryerContext)
		if !ok {
			return sqldriver.ErrSkip
		}
		rows, err := q.QueryContext(ctx, text, nil)
		if err != nil {
			return err
		}
		return read(&driverRows{rows: rows})
	})
}

// driverRows reads the rows of a driver. What it scans into are sql.Scanners.
type driverRows struct {
	rows   sqldriver.Rows
	values []sqldriver.Value
	err    error
}

func (r *driverRows) Columns() ([]string, error) { return r.rows.Columns(), nil }
func (r *driverRows) Close() error               { return r.rows.Close() }

func (r *driverRows) Next() bool {
	if r.err == nil {
		r.values = make([]sqldriver.Value, len(r.rows.Columns()))
		r.err = r.rows.Next(r.values)
	}
	return r.err == nil
}

func (r *driverRows) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

func (r *driverRows) NextResultSet() bool {
	more, ok := r.rows.(sqldriver.RowsNextResultSet)
	if r.Err() != nil || !ok || !more.HasNextResultSet() {
		return false
	}
	r.err = more.NextResultSet()
	return r.err == nil
}

func (r *driverRows) Scan(to ...any) error {
	for i, place := range to {
		if err := place.(sql.Scanner).Scan(r.values[i]); err != nil {
			return fmt.Errorf("sql: Scan error on column index %d: %w", i, err)
		}
	}
	return nil
}
