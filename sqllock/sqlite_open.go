package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// closeWithin is how long the program has to give back connections to a file that was
// replaced.
const closeWithin = time.Second

// database is one opening of the database file. It ends when the path leads to another
// file.
type database struct {
	statements map[string][]statement // by the names of their files
	file       *sqliteFile
	// timeout is the DSN's busy timeout, in ms. SQLite sleeps that long inside a
	// statement, and no interrupt wakes it.
	timeout int
	node    int64 // names this opening in claims
	ended   bool  // guarded by the store
}

//go:embed query/sqlite/*.sql
var sqliteQueries embed.FS

// close closes the statements.
func (d *database) close() error {
	var errs []error
	for _, stmts := range d.statements {
		for _, stmt := range stmts {
			errs = append(errs, stmt.Close())
		}
	}
	return errors.Join(errs...)
}

// database returns the current opening; it opens the file if there is none.
func (s *sqlite) database(ctx context.Context) (*database, error) {
	if d, ok := s.current(); ok {
		return d, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.opening }()
	before, ok := s.current()
	if ok {
		return before, nil
	}
	d, err := s.open(ctx, before)
	if cannotOpen(err) {
		return nil, permanent(s.fail("open the file", "", err))
	}
	if err != nil {
		return nil, s.fail("open the tables", "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = d
	return d, nil
}

// current returns the last opening, or nil, and whether that goes on.
func (s *sqlite) current() (d *database, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.opened != nil && !s.opened.ended
}

// retire ends an opening. Later calls open the file anew.
func (s *sqlite) retire(d *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !d.ended {
		d.ended = true
		d.close()
	}
}

// path is where the database file is; empty if it is in memory or not open.
func (s *sqlite) path() string {
	if d, ok := s.current(); ok {
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
	var d *database
	err := retry(ctx, movedAway, time.Millisecond, time.Millisecond, func() (err error) {
		d, err = s.openOnce(ctx)
		return err
	})
	return d, err
}

func movedAway(err error) bool { return errors.Is(err, errMoved) }

// openOnce returns errMoved if the file was replaced meanwhile.
func (s *sqlite) openOnce(ctx context.Context) (*database, error) {
	var path string
	err := retryBusy(ctx, func() error {
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
	d := &database{file: f, node: rand.Int64()}
	if err = s.prepare(ctx, d); err == nil {
		err = s.check(ctx, d)
	} else if _, moved := f.stat(); moved == errMoved {
		err = errMoved
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// prepare looks at the tables, creates them if that was asked for, and prepares the
// statements of d. database/sql prepares them again for each connection.
func (s *sqlite) prepare(ctx context.Context, d *database) error {
	inspect := func() error { return s.inspect(ctx, d) }
	err := retryBusy(ctx, inspect)
	if noTable(err) && s.create {
		if err := retryBusy(ctx, func() error { return s.createTables(ctx) }); err != nil {
			return s.fail("create the tables", "", err)
		}
		err = retryBusy(ctx, inspect)
	}
	if err != nil {
		return err
	}
	files, err := sqliteQueries.ReadDir("query/sqlite")
	if err != nil {
		return err
	}
	d.statements = make(map[string][]statement)
	for _, f := range files {
		file, err := sqliteQueries.ReadFile("query/sqlite/" + f.Name())
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(f.Name(), ".sql")
		for part := range strings.SplitSeq(string(file), ";\n") {
			stmt, text := newStatement(s.names, part)
			if text == "" {
				continue
			}
			err := retryBusy(ctx, func() (err error) {
				stmt.Stmt, err = s.db.PrepareContext(ctx, text)
				return err
			})
			if err != nil {
				return err
			}
			d.statements[name] = append(d.statements[name], stmt)
		}
	}
	return nil
}

// inspect checks the version of SQLite and the format of the tables.
func (s *sqlite) inspect(ctx context.Context, d *database) error {
	var version string
	if err := s.db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 3 || major == 3 && minor < 37 {
		// STRICT tables came in 3.37, RETURNING in 3.35.
		return permanent(fmt.Errorf("sqlite: this is SQLite %s: 3.37 or later is needed", version))
	}
	var format string
	query := s.names.sql("SELECT value FROM fencelock_meta WHERE name = 'format'")
	err := s.db.QueryRowContext(ctx, query).Scan(&format)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		err = s.checkFormat(format)
	}
	if err != nil {
		return err
	}
	return s.db.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&d.timeout)
}

// check returns errMoved if the path leads to another file. If only the -wal file is another
// one, it asks a connection whether that is right: SQLite deletes the -wal file with the last
// connection of all processes.
func (s *sqlite) check(ctx context.Context, d *database) error {
	wal, err := d.file.stat()
	if err != nil || d.file.hasWAL(wal) {
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
	soon, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	var used error
	err := retry(soon, movedAway, time.Millisecond, time.Millisecond, func() error {
		err := s.closeIdle(soon)
		if n := s.db.Stats().OpenConnections; err == nil && n > 0 {
			used = fmt.Errorf("sqlite: %w, and the program still has %d connections to the old one: close them",
				errMoved, n)
			return used
		}
		return err
	})
	if err != nil && ctx.Err() == nil && used != nil {
		return used
	}
	return err
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

// createTables runs the schema. A database without any table is put into
// write-ahead logging first; the mode of one that is in use already is its owner's.
func (s *sqlite) createTables(ctx context.Context) error {
	var tables int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		if _, err := s.db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
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
