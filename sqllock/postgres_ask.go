package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// ask calls a function of the schema, and gives each row that it answers to take, which
// keeps nothing of it.
//
// The driver is asked on a connection of the pool, past Rows of database/sql.
func (p *postgres) ask(ctx context.Context, take func(*row) error, query string, args ...any) error {
	// A connection of the pool may have broken unseen. After two of them database/sql
	// opens a new one, and that is its to do.
	for tries := 0; tries < 2 && !p.slow.Load(); tries++ {
		sent, err := p.askDriver(ctx, take, query, args)
		switch {
		case !sent && errors.Is(err, sqldriver.ErrSkip):
			p.slow.Store(true)
		case sent || !errors.Is(err, sqldriver.ErrBadConn):
			return err
		}
	}
	return p.each(ctx, func(rows *sql.Rows) error {
		var x row
		var cells, pointers [columns]any
		for i := range cells {
			pointers[i] = &cells[i]
		}
		if err := rows.Scan(pointers[:]...); err != nil {
			return err
		}
		for i, cell := range cells {
			x.cells[i] = cell
		}
		return take(&x)
	}, query, args...)
}

// askDriver is ask on one connection. Unless sent, nothing has happened: the driver says
// so, by ErrBadConn for that connection, and by ErrSkip for all.
func (p *postgres) askDriver(ctx context.Context, take func(*row) error, query string, args []any) (sent bool, err error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return true, err // which has tried again itself
	}
	defer conn.Close()
	err = conn.Raw(func(raw any) error {
		rows, err := queryDriver(ctx, raw, query, args)
		if err != nil {
			return err
		}
		sent = true
		return errors.Join(takeAll(rows, take), rows.Close())
	})
	return sent, err
}

func takeAll(rows sqldriver.Rows, take func(*row) error) error {
	if n := len(rows.Columns()); n != columns {
		return fmt.Errorf("the functions of fencelock answer rows of %d columns, not %d", n, columns)
	}
	for {
		var x row
		switch err := rows.Next(x.cells[:]); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := take(&x); err != nil {
			return err
		}
	}
}
