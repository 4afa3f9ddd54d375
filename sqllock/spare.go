package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// smallestShared is the smallest pool that a spare connection is taken from. A smaller one may
	// be what the program itself needs at a time, so the spare one comes on top of it.
	smallestShared = 3
	// spareFor is after how long another connection takes the place of the spare one, so that the
	// pool's ConnMaxLifetime holds for it, too.
	spareFor = time.Minute
)

// spare is a connection that a Backend keeps from its first grant until Close, for statements that
// keep or end claims, or look at them for a waiter. Without it, transactions of the program that wait
// for a lock could have all connections of the pool, and every lease of the process would end for want
// of one.
type spare struct {
	ctx  context.Context // ends with the Backend
	name string          // of the database
	db   *sql.DB
	free chan *sql.Conn // holds conn while no step uses it

	mine    atomic.Int64 // connections that steps have, or that are the spare one
	waiting atomic.Int64 // steps that wait for one of the pool
	waited  atomic.Int64 // when a context last ended such a wait, in ns

	mu     sync.Mutex
	conn   *sql.Conn // nil: there is none
	since  time.Time
	small  bool // the bound of the pool was raised for the spare connection
	closed bool
	wakes  sync.WaitGroup
}

func newSpare(c config) *spare {
	return &spare{ctx: c.ctx, name: c.name, db: c.db, free: make(chan *sql.Conn, 1)}
}

// take returns a connection for a statement that keeps or ends claims, and one that renews them, or
// another. A renewal takes the spare one if it can, which also keeps that alive, and so does each step
// on a small pool, which is left to the program. A pool that the program has closed gives none: the
// spare one would outlive it.
func (p *spare) take(ctx context.Context, keeps, renews bool) (*sql.Conn, error) {
	kept, small := p.kept()
	if !kept || !small && !keeps || p.shut() {
		return p.fromPool(ctx)
	}
	if small || renews || p.full() {
		select {
		case conn := <-p.free:
			return conn, nil
		default:
		}
	}
	return p.either(ctx)
}

// either takes what comes first: the spare connection, or one of the pool.
func (p *spare) either(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type taken struct {
		conn *sql.Conn
		err  error
	}
	pool := make(chan taken, 1)
	go func() {
		conn, err := p.fromPool(ctx)
		pool <- taken{conn, err}
	}()
	select {
	case t := <-pool:
		return t.conn, t.err
	case conn := <-p.free:
		cancel()
		if t := <-pool; t.err == nil {
			p.endExtra(t.conn)
		}
		return conn, nil
	}
}

func (p *spare) fromPool(ctx context.Context) (*sql.Conn, error) {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	conn, err := p.db.Conn(ctx)
	if err == nil {
		p.mine.Add(1)
		if err = ctx.Err(); err == nil {
			return conn, nil
		}
		p.end(conn)
	}
	if ended := ctx.Err(); ended != nil {
		p.waited.Store(time.Now().UnixNano())
		return nil, p.starved(ended)
	}
	return nil, err
}

// end gives a connection back to the pool.
func (p *spare) end(conn *sql.Conn) {
	conn.Close()
	p.mine.Add(-1)
}

// endExtra gives back a connection that was used because the spare one was busy. A small pool keeps
// no such one: the server may have no place for it.
func (p *spare) endExtra(conn *sql.Conn) {
	if _, small := p.kept(); small {
		discard(conn)
	}
	p.end(conn)
}

// giveBack ends the use of a connection. One that has brought a grant becomes the spare one if
// there is none. broken says that it may not be used again.
func (p *spare) giveBack(conn *sql.Conn, granted, broken bool) {
	if conn = p.keep(conn, granted, broken); conn != nil {
		p.endExtra(conn)
	}
}

// keep returns the connection that is to go back to the pool, or nil. Close may wait for the driver, so
// it is called without the mutex.
func (p *spare) keep(conn *sql.Conn, granted, broken bool) *sql.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := conn == p.conn
	switch {
	case own && (broken || p.closed):
		p.conn = nil
	case own:
		p.free <- conn
		return nil
	case broken || p.closed:
	case p.conn == nil && (granted || !p.since.IsZero()) && p.reserveLocked():
		p.keepLocked(conn)
		return nil
	case p.conn != nil && time.Since(p.since) >= spareFor:
		select {
		case old := <-p.free:
			p.keepLocked(conn)
			return old
		default:
		}
	}
	return conn
}

// raises are the pools whose bound is raised: small ones, for the spare connections of Backends.
var raises struct {
	sync.Mutex
	of map[*sql.DB]raise
}

type raise struct{ by, to int }

// raiseOf returns how the bound of db is raised, unless the program has set another one since.
func raiseOf(db *sql.DB) raise {
	r, most := raises.of[db], db.Stats().MaxOpenConnections
	if r.to != most {
		return raise{0, most}
	}
	return r
}

// change raises the bound of db by one more, or by one less.
func (r raise) change(db *sql.DB, by int) {
	r = raise{r.by + by, r.to + by}
	db.SetMaxOpenConns(r.to)
	if raises.of == nil {
		raises.of = make(map[*sql.DB]raise)
	}
	if raises.of[db] = r; r.by == 0 {
		delete(raises.of, db)
	}
}

// reserveLocked reports whether the pool has a connection to spare. The bound of a small one is raised
// by one for it.
func (p *spare) reserveLocked() bool {
	raises.Lock()
	defer raises.Unlock()
	r := raiseOf(p.db)
	if r.to > 0 && r.to-r.by < smallestShared && !(p.small && r.by > 0) {
		p.small = true
		r.change(p.db, 1)
		if p.db.Stats().WaitCount > 0 {
			p.wakes.Go(p.wake)
		}
	}
	return r.to > 0 // without a bound there is always one
}

// wake has the pool open one more connection if somebody waits for one already: to raise the bound
// does not, but the end of a connection does. Nothing is left open if nobody waits.
func (p *spare) wake() {
	if conn, err := p.db.Conn(p.ctx); err == nil {
		discard(conn)
		conn.Close()
	}
}

// discard closes a connection that would go back to the pool.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) }

// lowerLocked undoes reserveLocked.
func (p *spare) lowerLocked() {
	raises.Lock()
	defer raises.Unlock()
	switch r := raiseOf(p.db); {
	case r.by == 0:
		delete(raises.of, p.db)
	case p.small:
		r.change(p.db, -1)
	}
	p.small = false
}

func (p *spare) keepLocked(conn *sql.Conn) {
	p.conn, p.since = conn, time.Now()
	p.free <- conn
}

// close gives the connection back. No step is under way.
func (p *spare) close() {
	p.wakes.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn != nil {
		p.end(<-p.free)
		p.conn = nil
	}
	p.lowerLocked()
}

// kept reports whether there is a spare connection, and whether it is on top of a small pool.
func (p *spare) kept() (kept, small bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil, p.small
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// shut reports whether the program has closed the pool. It asks for a connection in a context that
// has ended, which costs nothing: database/sql looks first whether the pool is closed.
func (p *spare) shut() bool {
	_, err := p.db.Conn(ended)
	return !errors.Is(err, context.Canceled)
}

// full reports whether all connections of the pool are in use.
func (p *spare) full() bool {
	s := p.db.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// starved is err, the end of a context, with its cause if steps wait for connections that the
// program has.
func (p *spare) starved(err error) error {
	s, mine := p.db.Stats(), int(p.mine.Load())
	waits := p.waiting.Load() > 0 || time.Since(time.Unix(0, p.waited.Load())) < time.Second
	if !waits || s.MaxOpenConnections <= 0 || s.InUse < s.MaxOpenConnections || s.InUse <= mine {
		return err
	}
	return &poolError{p.name, s.InUse, s.InUse - mine, err}
}

// poolError says that a step had no connection until its context ended, because the program has
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
