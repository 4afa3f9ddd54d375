package foreign

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"time"
)

// Session takes locks that belong to a session of the database. Its methods may be called from many goroutines at
// once. Each is one statement. A lock that is held keeps a connection.
type Session struct {
	name              string
	db                *sql.DB
	try, has, release string // each answers 1 for yes
	number            func(key string) any

	mu    sync.Mutex
	conns map[[2]string]*sql.Conn // by key and ID
}

// Advisory returns locks on db as pg_advisory_lock(number(key)) takes them, in a session of PostgreSQL. Without number
// the lock of a key is pg_advisory_lock(hashtext(key)).
func Advisory(db *sql.DB, number func(key string) int64) *Session {
	s := &Session{
		name: "pg_advisory_lock", db: db, conns: map[[2]string]*sql.Conn{},
		try:     `SELECT pg_try_advisory_lock($1)::int`,
		has:     `SELECT 1 WHERE $1::bigint IS NOT NULL`, // the session is there, and so is its lock
		release: `SELECT pg_advisory_unlock($1)::int`,
		number:  func(key string) any { return number(key) },
	}
	if number == nil {
		s.try = `SELECT pg_try_advisory_lock(hashtext($1))::int`
		s.has = `SELECT 1 WHERE $1::text IS NOT NULL`
		s.release = `SELECT pg_advisory_unlock(hashtext($1))::int`
		s.number = func(key string) any { return key }
	}
	return s
}

// GetLock returns locks on db as GET_LOCK(prefix + key) takes them, in a session of MySQL or MariaDB. The name has at
// most 64 characters.
func GetLock(db *sql.DB, prefix string) *Session {
	return &Session{
		name: "GET_LOCK", db: db, conns: map[[2]string]*sql.Conn{},
		try:     `SELECT COALESCE(GET_LOCK(?, 0), 0)`,
		has:     `SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0)`,
		release: `SELECT COALESCE(RELEASE_LOCK(?), 0)`,
		number:  func(key string) any { return prefix + key },
	}
}

// Name returns the function that takes the lock.
func (s *Session) Name() string { return s.name }

// Close ends the sessions, and with them the locks.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.conns {
		end(c)
		delete(s.conns, id)
	}
	return nil
}

// Try takes the lock of key in a session of its own. The ttl is not kept: the lock lasts as long as the session.
func (s *Session) Try(ctx context.Context, key, id string, _ time.Duration) (bool, error) {
	if s.find(key, id) != nil {
		return s.Renew(ctx, key, id, 0)
	}
	c, err := s.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	got, err := s.ask(ctx, c, s.try, key)
	if err != nil {
		end(c) // and with the session the lock that it may have taken
		return false, err
	}
	if !got {
		return false, c.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[[2]string{key, id}] = c
	return true, nil
}

// Renew reports whether the session of the lock is there still.
func (s *Session) Renew(ctx context.Context, key, id string, _ time.Duration) (bool, error) {
	c := s.find(key, id)
	if c == nil {
		return false, nil
	}
	has, err := s.ask(ctx, c, s.has, key)
	if err != nil && ctx.Err() != nil {
		return false, err // the driver may have closed the connection: the next one says so
	}
	if err != nil || !has {
		s.drop(key, id)
		end(c)
		return false, nil
	}
	return true, nil
}

// Release frees the lock and gives the session back.
func (s *Session) Release(ctx context.Context, key, id string) (bool, error) {
	c := s.find(key, id)
	if c == nil {
		return false, nil
	}
	had, err := s.ask(ctx, c, s.release, key)
	s.drop(key, id)
	if err != nil {
		end(c) // which frees the lock too
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

// ask runs a statement that answers 1 or 0.
func (s *Session) ask(ctx context.Context, c *sql.Conn, statement, key string) (bool, error) {
	var n int
	err := c.QueryRowContext(ctx, statement, s.number(key)).Scan(&n)
	return n == 1, err
}

// end closes the connection of c itself, and does not give it back to the pool with a lock that it may have.
func end(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}
