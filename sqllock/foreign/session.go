package foreign

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
)

// Session takes locks that belong to a session of the database. Its methods may be called from many goroutines at
// once. Each is one statement. A lock that is held keeps a connection, and so does a claim that waits.
type Session struct {
	server
	try, wait, has, release string // each answers 1 for yes
	patient                 string // begins the transaction in which wait is sent, if there is one
	number                  func(key string) any

	mu    sync.Mutex
	conns map[[2]string]*sql.Conn // by key and ID
	lines map[[2]string]*place    // of claims that wait; nil for one that has not joined the line yet
}

// place is a place in the line of the server. A client that only tries never gets a lock for which others wait there.
type place struct {
	leave  context.CancelFunc
	served chan struct{} // closed when the server has answered
	conn   *sql.Conn     // has the lock; nil if the session has ended
}

// Advisory returns locks on db as pg_advisory_lock(number(key)) takes them, in a session of PostgreSQL. Without number
// the lock of a key is pg_advisory_lock(hashtext(key)).
func Advisory(db *sql.DB, number func(key string) int64) *Session {
	s := &Session{
		server: server{"pg_advisory_lock", db, reply.Postgres.With(reply.Advice{
			Verdict: reply.Lasting, Codes: "42501", Text: "the role lacks a right: GRANT EXECUTE ON FUNCTION " +
				"pg_try_advisory_lock(bigint), pg_advisory_lock(bigint) and pg_advisory_unlock(bigint)",
		})},
		conns: map[[2]string]*sql.Conn{}, lines: map[[2]string]*place{},
		try:     `SELECT pg_try_advisory_lock($1)::int`,
		wait:    `SELECT 1 FROM (SELECT pg_advisory_lock($1)) AS l`,
		has:     `SELECT 1 WHERE $1::bigint IS NOT NULL`, // the session is there, and so is its lock
		release: `SELECT pg_advisory_unlock($1)::int`,
		patient: `SELECT count(set_config(name, '0', true)) FROM pg_settings
			WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')`,
		number: func(key string) any { return number(key) },
	}
	if number == nil {
		s.try = `SELECT pg_try_advisory_lock(hashtext($1))::int`
		s.wait = `SELECT 1 FROM (SELECT pg_advisory_lock(hashtext($1))) AS l`
		s.has = `SELECT 1 WHERE $1::text IS NOT NULL`
		s.release = `SELECT pg_advisory_unlock(hashtext($1))::int`
		s.number = func(key string) any { return key }
	}
	return s
}

// A server that is read-only answers 2: it may be a replica, or a primary that was, whose locks exclude nobody on the
// primary. While a claim waits the server may become one.
const (
	isReadOnly     = ` WHEN CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only THEN 2`
	unlessReadOnly = isReadOnly + ` ELSE 1 END`
	getLock        = ` CASE` + isReadOnly + ` WHEN COALESCE(GET_LOCK(?, %d), 0) = 0 THEN 0` + unlessReadOnly
)

// unlimited begins a statement that MariaDB, and MySQL, end by no time limit of the server, the user or the session.
const unlimited = `/*M! SET STATEMENT max_statement_time = 0 FOR */ SELECT /*+ MAX_EXECUTION_TIME(4294967295) */`

var errReadOnly = reply.Refused.Of(errors.New("the server is read-only, and the locks of a replica do not exclude " +
	"those of its primary: connect to the primary"))

// GetLock returns locks on db as GET_LOCK(prefix + key) takes them, in a session of MySQL or MariaDB. The name has at
// most 64 characters.
func GetLock(db *sql.DB, prefix string) *Session {
	return &Session{
		server: server{"GET_LOCK", db, reply.MySQL},
		conns:  map[[2]string]*sql.Conn{}, lines: map[[2]string]*place{},
		try:     fmt.Sprintf(`SELECT`+getLock, 0),
		wait:    fmt.Sprintf(unlimited+getLock, 365*24*3600),
		has:     `SELECT CASE WHEN COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0) = 0 THEN 0` + unlessReadOnly,
		release: `SELECT COALESCE(RELEASE_LOCK(?), 0)`,
		number:  func(key string) any { return prefix + key },
	}
}

// Name returns the function that takes the lock.
func (s *Session) Name() string { return s.format }

// Close ends the sessions, and with them the locks.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.conns {
		swapsql.CloseConn(c)
		delete(s.conns, id)
	}
	for id, p := range s.lines {
		go p.end()
		delete(s.lines, id)
	}
	return nil
}

// Try takes the lock of key in a session of its own. The ttl is not kept: the lock lasts as long as the session. A
// repeated Try joins the line of the server, and waits in it for up to a second.
func (s *Session) Try(ctx context.Context, key, id string, _ time.Duration) (bool, error) {
	if s.find(key, id) != nil {
		return s.Renew(ctx, key, id, 0)
	}
	if p := s.join(key, id); p != nil {
		return s.await(ctx, key, id, p)
	}
	c, err := s.db.Conn(ctx)
	if err != nil {
		return false, s.failed(ctx, "take", key, err)
	}
	got, err := s.ask(ctx, c, s.try, key)
	if err != nil {
		swapsql.CloseConn(c) // and with the session the lock that it may have taken
		return false, s.failed(ctx, "take", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !got {
		s.lines[[2]string{key, id}] = nil
		return false, c.Close()
	}
	s.conns[[2]string{key, id}] = c
	return true, nil
}

// join returns the place of a claim that has tried before, and nil for one that has not.
func (s *Session) join(key, id string) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, tried := s.lines[[2]string{key, id}]
	if p != nil || !tried {
		return p
	}
	ctx, cancel := context.WithCancel(context.Background())
	p = &place{leave: cancel, served: make(chan struct{})}
	s.lines[[2]string{key, id}] = p
	go func() {
		defer close(p.served)
		c, err := s.db.Conn(ctx)
		if err != nil {
			return
		}
		if got, err := s.askPatiently(ctx, c, key); err != nil || !got {
			swapsql.CloseConn(c)
			return
		}
		p.conn = c
	}()
	return p
}

// askPatiently waits in the line of the server. A time limit for statements, as of a role, would cost the place.
func (s *Session) askPatiently(ctx context.Context, c *sql.Conn, key string) (got bool, err error) {
	if s.patient == "" {
		return s.ask(ctx, c, s.wait, key)
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	var ignored int
	if err = tx.QueryRowContext(ctx, s.patient).Scan(&ignored); err == nil {
		got, err = s.ask(ctx, tx, s.wait, key)
	}
	return got, errors.Join(err, tx.Commit()) // the lock is that of the session
}

// await waits for the turn of p.
func (s *Session) await(ctx context.Context, key, id string, p *place) (bool, error) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-p.served:
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines[[2]string{key, id}] != p {
		return false, nil // it has left
	}
	delete(s.lines, [2]string{key, id})
	if p.conn != nil {
		s.conns[[2]string{key, id}] = p.conn
	}
	return p.conn != nil, nil
}

// end gives up a place, and the lock if it has it.
func (p *place) end() {
	if p == nil {
		return
	}
	p.leave()
	<-p.served
	if p.conn != nil {
		swapsql.CloseConn(p.conn)
	}
}

// Renew reports whether the session of the lock is there still.
func (s *Session) Renew(ctx context.Context, key, id string, _ time.Duration) (bool, error) {
	c := s.find(key, id)
	if c == nil {
		return false, nil
	}
	has, err := s.ask(ctx, c, s.has, key)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errReadOnly)) {
		// The driver may have closed the connection, and the server take writes again: the next renewal says so.
		return false, s.failed(ctx, "renew", key, err)
	}
	if err != nil || !has {
		s.drop(key, id)
		swapsql.CloseConn(c)
		return false, nil
	}
	return true, nil
}

// Release frees the lock and gives the session back.
func (s *Session) Release(ctx context.Context, key, id string) (bool, error) {
	s.mu.Lock()
	p := s.lines[[2]string{key, id}]
	delete(s.lines, [2]string{key, id})
	s.mu.Unlock()
	go p.end() // a server that is away must not hold up the caller
	c := s.find(key, id)
	if c == nil {
		return false, nil
	}
	had, err := s.ask(ctx, c, s.release, key)
	s.drop(key, id)
	if err != nil {
		swapsql.CloseConn(c) // which frees the lock too
		return true, nil
	}
	return had, c.Close()
}

func (s *Session) find(key, id string) *sql.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[[2]string{key, id}]
}

func (s *Session) drop(key, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, [2]string{key, id})
}

// ask runs a statement that answers 1 or 0, or 2 for errReadOnly.
func (s *Session) ask(ctx context.Context, c asker, statement, key string) (bool, error) {
	var n int
	err := c.QueryRowContext(ctx, statement, s.number(key)).Scan(&n)
	if n == 2 {
		err = errReadOnly
	}
	return n == 1, err
}

// asker is a *sql.Conn, or a *sql.Tx on it.
type asker interface {
	QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
}
