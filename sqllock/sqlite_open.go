package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	sqliteFormat = 1
	sqliteOldest = 3*1000 + 37 // STRICT tables; RETURNING came in 3.35
	// closeWithin is how long the program has to give back connections to a file that was
	// replaced.
	closeWithin = time.Second
)

// database is one opening of the database file. It ends when the path leads to another
// file.
type database struct {
	*statements
	file *sqliteFile
	// timeout is the DSN's busy timeout, in ms. SQLite sleeps that long inside a
	// statement, and no interrupt wakes it.
	timeout int
	node    int64 // names this opening in claims
	again   bool  // an earlier opening has ended
}

// database returns the current opening; it opens the file if there is none.
func (s *sqlite) database(ctx context.Context) (*database, error) {
	if d, _ := s.current(); d != nil {
		return d, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.opening }()
	d, before := s.current()
	if d != nil {
		return d, nil
	}
	d, err := s.open(ctx, before)
	if err != nil {
		return nil, s.openError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.before = d, nil
	return d, nil
}

// current returns the current opening, or the one that has ended.
func (s *sqlite) current() (d, before *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.before
}

// retire ends an opening. Later calls open the file anew.
func (s *sqlite) retire(d *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == d {
		s.opened, s.before = nil, d
		d.statements.close()
	}
}

// path is where the database file is; empty if it is in memory or not open.
func (s *sqlite) path() string {
	if d, _ := s.current(); d != nil {
		return d.file.path
	}
	return ""
}

// open opens the file that the path leads to. No connection may lead elsewhere: those of
// the opening before are closed, and those that the program has opened before the first
// call and does not use.
func (s *sqlite) open(ctx context.Context, before *database) (*database, error) {
	if before != nil {
		if err := before.file.leftBehind(); err != nil {
			return nil, err
		}
		if err := s.closeAll(ctx); err != nil {
			return nil, err
		}
	}
	for {
		d, err := s.openOnce(ctx)
		if !errors.Is(err, errMoved) {
			if d != nil && before != nil {
				d.node, d.again = newNode(), true
			}
			return d, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// openOnce returns errMoved if the file was replaced meanwhile.
func (s *sqlite) openOnce(ctx context.Context) (*database, error) {
	var path string
	err := retry(ctx, func() error {
		return s.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path)
	})
	if err != nil {
		return nil, err
	}
	f, err := newSQLiteFile(path)
	if errors.Is(err, errMoved) {
		// The connection is from before the file was deleted.
		return nil, errors.Join(err, s.closeIdle(ctx))
	}
	if err != nil {
		return nil, err
	}
	if f.main != nil {
		if n := links(f.main); n > 1 {
			return nil, permanent(fmt.Errorf("sqlite: %s has %d hard links: SQLite would keep a -wal file for each "+
				"name, and each would be another set of locks: delete the other names (find -samefile shows them)",
				path, n))
		}
		// Connections that are opened from here on lead to the file that was described, or
		// the check below finds another one.
		if err := s.closeIdle(ctx); err != nil {
			return nil, err
		}
	}
	d := &database{file: f, node: s.node}
	if err := s.prepare(ctx, d); err != nil {
		if f.check() == errMoved {
			err = errMoved
		}
		return nil, err
	}
	if err := s.check(ctx, d); err != nil {
		d.statements.close()
		return nil, err
	}
	return d, nil
}

// prepare prepares the statements of d, and creates the tables if that was asked for.
func (s *sqlite) prepare(ctx context.Context, d *database) error {
	err := retry(ctx, func() error { return s.inspect(ctx, d) })
	if !missing(err) || !s.create {
		return err
	}
	if err := retry(ctx, func() error { return s.createTables(ctx) }); err != nil {
		return s.fail("create the tables", err)
	}
	return retry(ctx, func() error { return s.inspect(ctx, d) })
}

// check is sqliteFile.check. If the -wal file is another one, it asks a connection whether
// that is right.
func (s *sqlite) check(ctx context.Context, d *database) error {
	err := d.file.check()
	if err != errOtherWAL {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return checkConn(d, conn)
}

func checkConn(d *database, conn *sql.Conn) error {
	var moved error
	err := conn.Raw(func(c any) error {
		moved = d.file.checkConn(c)
		return nil
	})
	return errors.Join(err, moved)
}

// closeAll closes all connections of the pool, and waits for those that are in use.
func (s *sqlite) closeAll(ctx context.Context) error {
	deadline := time.Now().Add(closeWithin)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := s.closeIdle(ctx); err != nil {
			return err
		}
		n := s.db.Stats().OpenConnections
		if n == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("sqlite: %w, and the program still has %d connections to the old one: close them",
				errMoved, n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// closeIdle closes those connections of the pool that nobody uses.
func (s *sqlite) closeIdle(ctx context.Context) error {
	for s.db.Stats().Idle > 0 {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		closeConn(conn)
	}
	return nil
}

// closeConn closes a connection instead of giving it back to the pool.
func closeConn(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	conn.Close()
}

// openError says why the file could not be opened, and what to do.
func (s *sqlite) openError(err error) error {
	if cannotOpen(err) {
		return permanent(fmt.Errorf("sqlite: the database file cannot be opened: see that its folder is there and may be "+
			"written to: %w",
			err))
	}
	return s.fail("open the tables", err)
}

// inspect checks the version of SQLite and the format of the tables, and prepares
// the statements.
func (s *sqlite) inspect(ctx context.Context, d *database) error {
	var version string
	if err := s.db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	if n := versionNumber(version); n < sqliteOldest {
		return permanent(fmt.Errorf("sqlite: this is SQLite %s: 3.37 or later is needed", version))
	}
	var format any
	err := s.db.QueryRowContext(ctx, s.query("format")).Scan(&format)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return permanent(fmt.Errorf("sqlite: the table %smeta does not say which format the tables have: run the DDL of "+
			"this version again",
			s.names.prefix))
	case err != nil:
		return err
	case format != int64(sqliteFormat):
		return permanent(fmt.Errorf("sqlite: the tables %s* have format %v, and this program knows format %d: use the "+
			"fencelock that made them, or another Prefix",
			s.names.prefix, format, sqliteFormat))
	}
	if err := s.db.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&d.timeout); err != nil {
		return err
	}
	prepared := &statements{}
	for name, p := range prepared.files() {
		if *p, err = s.db.PrepareContext(ctx, s.query(name)); err != nil {
			prepared.close()
			return err
		}
	}
	d.statements = prepared
	return nil
}

// createTables runs the schema. A database without any table is put into
// write-ahead logging first; the mode of one that is in use already is its owner's.
func (s *sqlite) createTables(ctx context.Context) error {
	var tables int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		var mode string
		if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, s.names.sql(sqliteSchema)); err != nil {
		return err
	}
	return tx.Commit()
}

// versionNumber makes 3037 of "3.37.2".
func versionNumber(v string) int {
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a*1000 + b
}
