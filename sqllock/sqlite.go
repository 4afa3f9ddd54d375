package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// sqliteInfo: leases below 100 ms would end while their holder waits for another
// process to release the write lock, or for a disk that syncs.
var sqliteInfo = driver.Info{
	Name:      "sqlite",
	Fair:      true,
	Fencing:   true,
	Linger:    true,
	Mark:      true,
	Semaphore: true,
	Push:      true,
	Lease:     driver.PerClaim,
	MinTTL:    100 * time.Millisecond,
	MaxTTL:    366 * 24 * time.Hour,
}

// askFile is every millisecond soon after something happened, every ten later on, and
// every second while nobody waits but an Alarm is set.
func askFile(quiet time.Duration, waiting bool, _ float64) time.Duration {
	switch {
	case !waiting:
		return time.Second
	case quiet < 100*time.Millisecond:
		return time.Millisecond
	}
	return 10 * time.Millisecond
}

const (
	sqliteFormat = 1
	sqliteOldest = 3*1000 + 37 // STRICT tables; RETURNING came in 3.35
)

//go:embed query/sqlite/*.sql
var sqliteQueries embed.FS

// sqlite is the store on SQLite.
type sqlite struct {
	config
	turn   chan struct{} // held by the step that writes: SQLite has one writer
	enters atomic.Uint32 // paces the sweep
	path   string        // of the database file; empty if it is in memory
	s      *statements

	// timeout is the DSN's busy timeout, in ms. SQLite sleeps that long inside a
	// statement, and no interrupt wakes it.
	timeout int
}

func (s *sqlite) deaf() bool { return s.timeout > 0 }

// statements are prepared once, and by database/sql again for each connection.
type statements struct {
	enterFree, leaveFree, lock, probe, adopt, purge, order, grant, one, first, holding,
	join, again, renew, remove, linger, mark, lay, rest, look, grantOf, whole, next, news,
	sweepRange, sweepDead, sweepIdle, sweepRead, sweepWrite, memberRead, memberWrite *sql.Stmt
}

// files names the file of each statement.
func (s *statements) files() map[string]**sql.Stmt {
	return map[string]**sql.Stmt{
		"enter_free": &s.enterFree, "leave_free": &s.leaveFree, "lock": &s.lock,
		"probe": &s.probe, "adopt": &s.adopt, "purge": &s.purge, "order": &s.order,
		"grant": &s.grant, "one": &s.one, "first": &s.first, "holding": &s.holding,
		"join": &s.join, "again": &s.again, "renew": &s.renew, "remove": &s.remove,
		"linger": &s.linger, "mark": &s.mark, "lay": &s.lay, "rest": &s.rest,
		"look": &s.look, "grant_of": &s.grantOf, "whole": &s.whole, "next": &s.next,
		"news": &s.news, "sweep_range": &s.sweepRange, "sweep_dead": &s.sweepDead, "sweep_idle": &s.sweepIdle,
		"sweep_read": &s.sweepRead, "sweep_write": &s.sweepWrite,
		"member_read": &s.memberRead, "member_write": &s.memberWrite,
	}
}

func (s *statements) close() error {
	var errs []error
	for _, p := range s.files() {
		if *p != nil {
			errs = append(errs, (*p).Close())
		}
	}
	return errors.Join(errs...)
}

func openSQLite(c config) store {
	return &sqlite{config: c, turn: make(chan struct{}, 1)}
}

func (s *sqlite) close() error {
	if s.s == nil {
		return nil
	}
	return s.s.close()
}

// query returns the text of an embedded statement.
func (s *sqlite) query(name string) string {
	text, err := sqliteQueries.ReadFile("query/sqlite/" + name + ".sql")
	if err != nil {
		panic("sqllock: no statement " + name) // an embedded file is missing
	}
	return s.names.statement(string(text))
}

// ready looks at what database this is and prepares the statements.
func (s *sqlite) ready(ctx context.Context) error {
	err := retry(ctx, func() error { return s.inspect(ctx) })
	if missing(err) && s.create {
		if err := retry(ctx, func() error { return s.createTables(ctx) }); err != nil {
			return s.fail("create the tables", err)
		}
		err = retry(ctx, func() error { return s.inspect(ctx) })
	}
	if cannotOpen(err) {
		return permanent(fmt.Errorf("sqlite: the database file cannot be opened: see that its folder is there and may be written to: %w", err))
	}
	return s.fail("open the tables", err)
}

// inspect checks the version of SQLite and the format of the tables, and prepares
// the statements.
func (s *sqlite) inspect(ctx context.Context) error {
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
		return permanent(fmt.Errorf("sqlite: the table %smeta does not say which format the tables have: run the DDL of this version again", s.names.prefix))
	case err != nil:
		return err
	case format != int64(sqliteFormat):
		return permanent(fmt.Errorf("sqlite: the tables %s* have format %v, and this program knows format %d: use the fencelock that made them, or another Prefix", s.names.prefix, format, sqliteFormat))
	}
	if err := s.db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&s.path); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&s.timeout); err != nil {
		return err
	}
	prepared := &statements{}
	for name, p := range prepared.files() {
		if *p, err = s.db.PrepareContext(ctx, s.query(name)); err != nil {
			prepared.close()
			return err
		}
	}
	s.s = prepared
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
