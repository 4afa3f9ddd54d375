package sql_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock"
)

var swapDialects = map[sqllock.Dialect]*swapsql.Dialect{
	sqllock.SQLite: swapsql.SQLite, sqllock.Postgres: swapsql.Postgres, sqllock.MySQL: swapsql.MySQL,
}

// swapStore is the store below a Backend, on connections of its own.
func swapStore(db *sql.DB, d sqllock.Dialect) *swapsql.Store {
	return swapsql.New(&plainConns{db: db, dialect: d}, swapDialects[d], swapsql.Options{})
}

// plainConns runs one statement after another, and knows nothing of pools and files.
type plainConns struct {
	db       *sql.DB
	dialect  sqllock.Dialect
	mu       sync.Mutex
	sessions swapsql.Sessions
}

func (p *plainConns) Run(ctx context.Context, st *swapsql.Statement) (changed int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if changed, err = p.once(ctx, st); !p.undone(err) {
			return changed, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// undone reports whether another process was in the way.
func (p *plainConns) undone(err error) bool {
	if p.dialect == sqllock.SQLite {
		return err != nil && strings.Contains(err.Error(), "locked")
	}
	return swapDialects[p.dialect].Undone(err)
}

func (p *plainConns) once(ctx context.Context, st *swapsql.Statement) (int64, error) {
	if p.dialect == sqllock.SQLite {
		return p.inTransaction(ctx, st)
	}
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r, err := p.sessions.Send(ctx, conn, swapDialects[p.dialect], st)
	if err != nil {
		return 0, err
	}
	return st.Take(r)
}

// inTransaction runs st on SQLite, and what comes then.
func (p *plainConns) inTransaction(ctx context.Context, st *swapsql.Statement) (int64, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	r, err := onSQLite(ctx, tx, st)
	for _, next := range st.Then {
		if err == nil && r.Changed > 0 {
			_, err = onSQLite(ctx, tx, next)
		}
	}
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return st.Take(r)
}

func onSQLite(ctx context.Context, tx *sql.Tx, st *swapsql.Statement) (*swapsql.Result, error) {
	text, clock := swapsql.Clocked(st.Text)
	args := st.Args
	st.Clock = time.Now().UnixMicro()
	if clock >= 0 {
		args = slices.Insert(slices.Clone(args), clock, any(st.Clock))
	}
	return st.Send(ctx, tx, text, args)
}
