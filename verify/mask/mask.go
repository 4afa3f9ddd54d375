// Package mask makes a driver of database/sql look like others that there are.
package mask

import (
	"context"
	sqldriver "database/sql/driver"
	"strings"
	"sync/atomic"
)

// Driver is another driver behind a mask. What it meets is said for the questions that
// contain About; the others are passed on.
type Driver struct {
	sqldriver.Connector // the driver behind it
	About               string

	Prepares bool         // its connections have no way to take a question without preparing it
	Skips    bool         // they have one, and answer that they do not
	Narrow   bool         // rows have a column less
	Broken   atomic.Int32 // so many connections turn out to be broken when they are asked
	Breaks   atomic.Int32 // so many break after the question was sent

	Asked atomic.Int32 // questions, without those that are prepared first
	Sent  atomic.Int32 // those of them that reached the server
}

// Connect makes a connection.
func (d *Driver) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := conn{inner, d}
	if d.Prepares {
		return struct {
			sqldriver.Conn
			sqldriver.ExecerContext
		}{inner, c}, nil
	}
	return c, nil
}

type conn struct {
	sqldriver.Conn
	d *Driver
}

func (c conn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c conn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	q := c.Conn.(sqldriver.QueryerContext)
	if !strings.Contains(query, c.d.About) {
		return q.QueryContext(ctx, query, args)
	}
	c.d.Asked.Add(1)
	if c.d.Skips {
		return nil, sqldriver.ErrSkip
	}
	if c.d.Broken.Add(-1) >= 0 {
		return nil, sqldriver.ErrBadConn
	}
	c.d.Sent.Add(1)
	inner, err := q.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r := rows{inner, c.d}
	if more, ok := inner.(sqldriver.RowsNextResultSet); ok {
		return struct {
			rows
			results
		}{r, more}, nil
	}
	return r, nil
}

type rows struct {
	sqldriver.Rows
	d *Driver
}

// results are the methods that RowsNextResultSet has besides those of Rows.
type results interface {
	HasNextResultSet() bool
	NextResultSet() error
}

func (r rows) Columns() []string {
	all := r.Rows.Columns()
	if r.d.Narrow {
		return all[1:]
	}
	return all
}

func (r rows) Next(dest []sqldriver.Value) error {
	if r.d.Breaks.Add(-1) >= 0 {
		return sqldriver.ErrBadConn
	}
	return r.Rows.Next(dest)
}
