package swapsql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
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
	Creates   bool // it makes a table
	Text      string
	Args      []any
	// Rows is told that rows follow, also of a repeated statement, before Row takes them.
	Begin func()
	Row   func(scan func(to ...any) error) error // nil: there are no rows
	// Inserted takes what MariaDB and MySQL return as LAST_INSERT_ID.
	Inserted *int64
	// Then are done in the same transaction, if the statement has changed something. Only SQLite is asked for
	// that: it has no network between the statements.
	Then []*Statement
}

// Pool runs statements over the connections of a *sql.DB.
type Pool struct {
	db *sql.DB
	d  *Dialect
	mu sync.Mutex // one writer at a time, if the dialect says so
	sessions
}

// NewPool returns Conns on a pool.
func NewPool(db *sql.DB, d *Dialect) *Pool { return &Pool{db: db, d: d} }

// Run runs one statement.
func (p *Pool) Run(ctx context.Context, st *Statement) (changed int64, err error) {
	if p.d.oneWrite && st.Writes {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		changed, err = p.once(ctx, st)
		if err == nil || !slices.Contains(p.d.undone, p.d.code(err)) {
			return changed, err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (p *Pool) once(ctx context.Context, st *Statement) (int64, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if p.d.guarded {
		return p.run(ctx, conn, p.d, st)
	}
	if len(st.Then) > 0 {
		return st.all(ctx, conn, p.d)
	}
	return st.on(ctx, conn, p.d)
}

// all runs st and what comes then in a transaction.
func (st *Statement) all(ctx context.Context, conn *sql.Conn, d *Dialect) (changed int64, err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil { // the transaction may be open
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
	}()
	if changed, err = st.on(ctx, conn, d); err != nil {
		return 0, err
	}
	for _, next := range st.Then {
		if changed > 0 {
			if _, err := next.on(ctx, conn, d); err != nil {
				return 0, err
			}
		}
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return changed, err
}

// on runs st over conn.
func (st *Statement) on(ctx context.Context, conn *sql.Conn, d *Dialect) (int64, error) {
	text, args := d.bind(st.Text, st.Args)
	if st.Row == nil {
		res, err := conn.ExecContext(ctx, text, args...)
		if err != nil && d.duplicate != "" && d.code(err) == d.duplicate {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if st.Inserted != nil {
			if *st.Inserted, err = res.LastInsertId(); err != nil {
				return 0, err
			}
		}
		return res.RowsAffected()
	}
	if st.Begin != nil {
		st.Begin()
	}
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	n := int64(0)
	for ; rows.Next(); n++ {
		if err := st.Row(rows.Scan); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}
