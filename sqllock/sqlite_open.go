package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// closeWithin is how long the program has to give back connections to a file that was
// replaced.
const closeWithin = time.Second

// database is one opening of the database file. It ends when the path leads to another
// file.
type database struct {
	file   *sqliteFile
	number int64 // of this opening, from 1
	// timeout is the DSN's busy timeout, in ms. SQLite sleeps that long inside a
	// statement, and no interrupt wakes it.
	timeout int
	ahead   int64 // of the times in the file to the clock of the host, in µs

	mu         sync.RWMutex
	statements map[string]*prepared // by their texts
	ended      atomic.Bool
}

// end closes the statements. Later calls open the file anew. It reports whether d had not ended before.
func (d *database) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.Swap(true) {
		return false
	}
	for _, p := range d.statements {
		p.stmt.Close()
	}
	return true
}

// now is the time by the clock that the file's leases are counted on, in µs.
func (d *database) now() int64 { return hostClock() + d.ahead }

// current returns the last opening, or nil if that has ended.
func (s *sqlite) current() *database {
	if d := s.opened.Load(); d != nil && !d.ended.Load() {
		return d
	}
	return nil
}

// database returns the current opening; it opens the file if there is none.
func (s *sqlite) database(ctx context.Context) (*database, error) {
	if d := s.current(); d != nil {
		return d, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, &outOfTimeError{last: errNoTurn, ended: ctx.Err()}
	case <-s.ctx.Done():
		return nil, driver.ErrClosed
	}
	defer func() { <-s.opening }()
	if d := s.current(); d != nil {
		return d, nil
	}
	before := s.opened.Load()
	d, err := s.open(ctx, before)
	if cannotOpen(err) {
		return nil, permanent(errors.Unwrap(s.fail("open the file", "", err)))
	}
	if err != nil {
		return nil, s.fail("open the tables", "", err)
	}
	d.number = s.lost.Load() + 1
	s.opened.Store(d)
	return d, nil
}

// open opens the file that the path leads to. No connection may lead elsewhere: those of
// the opening before are closed, and those that the program has opened before the first
// call and does not use.
func (s *sqlite) open(ctx context.Context, before *database) (d *database, err error) {
	if before != nil {
		if err := before.file.leftBehind(); err != nil {
			return nil, err
		}
		if err := s.closeAll(ctx); err != nil {
			return nil, err
		}
	}
	again := func(err error) bool { return movedAway(err) || busy(err) }
	err = retry(ctx, again, time.Millisecond, 4*time.Millisecond, func() error {
		d, err = s.openOnce(ctx)
		if ended := ctx.Err(); ended != nil && (errors.Is(err, ended) || says(err, "interrupted")) {
			return &outOfTimeError{last: s.whyNotOpen(), ended: ended} // nothing was done for a claim yet
		}
		return err
	})
	return d, err
}

// whyNotOpen returns what a call that opens the file waits for.
func (s *sqlite) whyNotOpen() error {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return errAllInUse
	}
	return errNotOpen
}

// openOnce returns errMoved if the file was replaced meanwhile.
func (s *sqlite) openOnce(ctx context.Context) (*database, error) {
	var file string // empty in memory
	err := s.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file)
	if err != nil {
		return nil, err
	}
	f, err := newSQLiteFile(file)
	if err == nil && file != "" || movedAway(err) {
		// A connection may be from before the file was deleted. Those that are opened from here on
		// lead to the file that was described, or the check below finds another one.
		err = errors.Join(err, s.closeIdle(ctx))
	}
	if err != nil {
		return nil, err
	}
	d := &database{file: f, statements: map[string]*prepared{}}
	if err = s.prepare(ctx, d); err == nil {
		err = s.check(ctx, d)
	} else if _, moved := f.stat(); movedAway(moved) {
		err = errMoved
	}
	if err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// prepare looks at the tables, and creates them if that was asked for and one is missing.
func (s *sqlite) prepare(ctx context.Context, d *database) error {
	err := s.inspect(ctx, d)
	if !noTable(err) || !s.create {
		return err
	}
	if err := s.createTables(ctx); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return s.inspect(ctx, d)
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
	err := s.db.QueryRowContext(ctx, s.dialect.SQL(formatSQL, s.prefix)).Scan(&format)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		err = s.checkFormat(format)
	}
	if err != nil {
		return err
	}
	var none int
	for text, to := range map[string]*int{
		"SELECT count(*) FROM fencelock_swap, fencelock_lease, fencelock_history WHERE false": &none, // all are there
		"PRAGMA busy_timeout": &d.timeout,
	} {
		if err := s.db.QueryRowContext(ctx, s.sql(text)).Scan(to); err != nil {
			return err
		}
	}
	d.ahead, err = s.setClock(ctx)
	return err
}

// hostClock reads a clock of this host, in µs. Two readings of which one happened before the other are in that
// order on every clock but the wall clock, also when different processes made them.
func hostClock() int64 {
	if boot, ok := sinceBoot(); ok {
		return boot
	}
	return time.Now().UnixMicro()
}

// clockName names the clock that hostClock reads; it is "" for the wall clock.
func clockName() string {
	if _, ok := sinceBoot(); !ok {
		return ""
	}
	return fmt.Sprint("clock ", bootID())
}

// setClock returns what the times in the file are ahead of the clock of this host. All processes of a boot count
// on one clock, and the first one says where it begins: by the wall clock, but not before any time that is in
// the file. Setting the wall clock does nothing to a lease from then on, and one from before a restart of the
// host lasts no longer than its length.
func (s *sqlite) setClock(ctx context.Context) (ahead int64, err error) {
	clock, now := clockName(), hostClock()
	if clock == "" {
		return 0, nil
	}
	begin := s.sql(`SELECT max(?2, coalesce((SELECT max(came) FROM fencelock_swap), 0),
	coalesce((SELECT max(came) FROM fencelock_lease), 0)) - ?1`)
	read := s.sql("SELECT CAST(value AS INTEGER) FROM fencelock_meta WHERE name = ?")
	err = s.db.QueryRowContext(ctx, read, clock).Scan(&ahead)
	if !errors.Is(err, sql.ErrNoRows) {
		return ahead, err
	}
	wall := time.Now().UnixMicro()
	_, err = s.db.ExecContext(ctx, s.sql("INSERT INTO fencelock_meta (name, value) SELECT ?3, CAST((")+begin+
		") AS TEXT) WHERE true ON CONFLICT DO NOTHING", now, wall, clock)
	if says(err, readOnlyTexts...) {
		return wall - now, nil // for those who only look
	}
	if err != nil {
		return 0, err
	}
	return ahead, s.db.QueryRowContext(ctx, read, clock).Scan(&ahead)
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
	return d.file.checkConn(conn)
}

// closeAll closes all connections of the pool, and waits for those that are in use.
func (s *sqlite) closeAll(ctx context.Context) error {
	began := time.Now()
	again := func(err error) bool { return movedAway(err) && time.Since(began) < closeWithin }
	return retry(ctx, again, time.Millisecond, time.Millisecond, func() error {
		if err := s.closeIdle(ctx); err != nil {
			return err
		}
		if n := s.db.Stats().OpenConnections; n > 0 {
			return fmt.Errorf("sqlite: %w, and the program still has %d connections to the old one: close them",
				errMoved, n)
		}
		return nil
	})
}

// closeIdle closes those connections of the pool that nobody uses.
func (s *sqlite) closeIdle(ctx context.Context) error {
	for s.db.Stats().Idle > 0 {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		swapsql.CloseConn(conn)
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
	return s.runSchema(ctx, swapsql.SQLite.Schema(s.prefix))
}
