package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// poolUse counts the connections of a *sql.DB that the Backends of this process use. The bound of the pool is read at
// each use: a program may set it at any time.
type poolUse struct {
	name  string // of the database
	db    *sql.DB
	users int // Backends; guarded by poolUses

	mine    atomic.Int64 // connections that statements have
	waiting atomic.Int64 // statements that wait for one
	waited  atomic.Int64 // when a context last ended such a wait, in ns

	onTop chan struct{}            // has room for one: the statement that may have a connection more than the bound
	extra atomic.Pointer[sql.Conn] // the connection of that statement
}

// poolUses are those of the pools that Backends are open on.
var poolUses struct {
	sync.Mutex
	of map[*sql.DB]*poolUse
}

func usePool(name string, db *sql.DB) *poolUse {
	poolUses.Lock()
	defer poolUses.Unlock()
	p := poolUses.of[db]
	if p == nil {
		p = &poolUse{name: name, db: db, onTop: make(chan struct{}, 1)}
		if poolUses.of == nil {
			poolUses.of = make(map[*sql.DB]*poolUse)
		}
		poolUses.of[db] = p
	}
	p.users++
	return p
}

// end ends the use by one Backend, none of whose statements is under way.
func (p *poolUse) end() {
	poolUses.Lock()
	defer poolUses.Unlock()
	if p.users--; p.users == 0 {
		delete(poolUses.of, p.db)
	}
}

// take returns a connection for a statement. One that keeps or ends claims does not wait while the program has all
// connections of the pool: the transactions that have them may wait for a lock, and every lease of the process would
// end. Such a statement opens a connection on top of them, one at a time.
func (p *poolUse) take(ctx context.Context, keeps bool) (*sql.Conn, error) {
	if !keeps || !p.full(p.mine.Load()) {
		return p.fromPool(ctx)
	}
	select {
	case p.onTop <- struct{}{}:
	case <-ctx.Done():
		return nil, p.starved(ctx.Err())
	}
	bound, raised := p.raise()
	conn, err := p.fromPool(ctx)
	if raised != p.db.Stats().MaxOpenConnections {
		bound = raised // the program has set another one
	}
	if bound != raised {
		p.db.SetMaxOpenConns(bound) // once the statement has ended, the pool closes one connection
	}
	if err != nil {
		<-p.onTop
		return nil, err
	}
	p.extra.Store(conn)
	return conn, nil
}

// raise raises the bound of the pool by one connection, if the program has all.
func (p *poolUse) raise() (bound, raised int) {
	s := p.db.Stats()
	bound, raised = s.MaxOpenConnections, s.MaxOpenConnections
	if p.full(p.mine.Load()) {
		raised = s.InUse + 1
		p.db.SetMaxOpenConns(raised)
	}
	return bound, raised
}

// full reports whether the program has all connections of the pool, if Backends have so many.
func (p *poolUse) full(mine int64) bool {
	s := p.db.Stats()
	return s.MaxOpenConnections > 0 && s.InUse-int(mine) >= s.MaxOpenConnections
}

func (p *poolUse) fromPool(ctx context.Context) (*sql.Conn, error) {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	conn, err := p.db.Conn(ctx)
	if err == nil {
		p.mine.Add(1)
		if err = ctx.Err(); err == nil {
			return conn, nil
		}
		p.giveBack(conn)
	}
	if ended := ctx.Err(); ended != nil {
		p.waited.Store(time.Now().UnixNano())
		return nil, p.starved(ended)
	}
	return nil, err
}

// giveBack ends the use of a connection.
func (p *poolUse) giveBack(conn *sql.Conn) {
	conn.Close()
	p.mine.Add(-1)
	if p.extra.CompareAndSwap(conn, nil) {
		<-p.onTop
	}
}

// starved is err, the end of a context, with its cause if statements wait for connections that the
// program has.
func (p *poolUse) starved(err error) error {
	s, mine := p.db.Stats(), int(p.mine.Load())
	waits := p.waiting.Load() > 0 || time.Since(time.Unix(0, p.waited.Load())) < time.Second
	if !waits || s.MaxOpenConnections <= 0 || s.InUse < s.MaxOpenConnections || s.InUse <= mine {
		return err
	}
	return &poolError{p.name, s.InUse, s.InUse - mine, err}
}

// poolError says that a statement had no connection until its context ended, because the program has
// them.
type poolError struct {
	name           string
	all, elsewhere int // connections of the pool that are in use, and in use by the program
	err            error
}

func (e *poolError) Error() string {
	return fmt.Sprintf("%s: all %d connections of the *sql.DB are in use, %d of them by the program itself; a "+
		"transaction that waits for a lock keeps its connection: take the lock before BEGIN, raise SetMaxOpenConns, "+
		"or give the Backend a *sql.DB of its own: %v", e.name, e.all, e.elsewhere, e.err)
}

func (e *poolError) Unwrap() error { return e.err }
