package sqllock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/internal/swapsql"
)

// sqlite runs statements on a SQLite file.
type sqlite struct {
	config
	turn    chan struct{}            // held by the statement that writes: SQLite has one writer
	reading chan struct{}            // held by the statements that read
	opening chan struct{}            // held by the call that opens the file
	opened  atomic.Pointer[database] // the last opening; nil until the file is open
	lost    atomic.Int64             // how many openings have ended because the path leads elsewhere

	running sync.RWMutex // held for reading by statements
}

// maxReaders bounds the connections that read at a time.
const maxReaders = 4

func newSQLite(c config) conns {
	return &sqlite{
		config: c, opening: make(chan struct{}, 1),
		turn: make(chan struct{}, 1), reading: make(chan struct{}, maxReaders),
	}
}

// close waits for a statement that SQLite is in the middle of, at most for the busy timeout that the DSN asks for.
func (s *sqlite) close() {
	s.running.Lock()
	defer s.running.Unlock()
	if d := s.current(); d != nil {
		d.end()
	}
}

// Lost says how often the file was deleted or replaced.
func (s *sqlite) Lost() (times int64, reason string) { return s.lost.Load(), movedReason }

// listener hears changes of the file.
func (s *sqlite) listener() listen {
	return func(ctx context.Context, _ string, heard func()) error {
		path := s.path()
		if path == "" {
			return errNoFile
		}
		return listenFile(ctx, path, heard)
	}
}

var errNoFile = errors.New("the database is in memory, or not open")

// path is where the database file is; empty if it is in memory or not open.
func (s *sqlite) path() string {
	if d := s.current(); d != nil {
		return d.file.path
	}
	return ""
}

// busy reports that a transaction was not applied because somebody else was at it.
func busy(err error) bool {
	return says(err, busyTexts...)
}

var busyTexts = []string{"database is locked", "table is locked", "locking protocol"}

func noTable(err error) bool { return says(err, "no such table") }

func cannotOpen(err error) bool { return says(err, "unable to open database file") }

var readOnlyTexts = []string{"readonly database", "access permission denied", "authorization denied"}

var onSQLite = dialect{
	Dialect: swapsql.SQLite, conns: newSQLite, examine: examineSQLite,
	advice: []advice{
		{verdict: lasting, texts: []string{"no such table"}, text: "a table of fencelock is missing: set " +
			"Options.CreateTables, or run what fencelock schema sqlite prints"},
		{verdict: lasting, texts: readOnlyTexts, text: "the database may not be written to"},
		{verdict: lasting, texts: []string{"disk image is malformed", "file is not a database"},
			text: "the database file is damaged: restore it, or start with a new one"},
		{verdict: refused, texts: busyTexts,
			text: "another connection has the file locked for long: end its transaction"},
		{verdict: refused, texts: []string{errNoTurn.Error()},
			text: "calls of this process that came first have waited for the file since"},
		{verdict: refused, texts: []string{errNotOpen.Error()},
			text: "its disk, or this machine, was too slow for the time that the call had"},
		{verdict: refused, texts: []string{errAllInUse.Error()},
			text: "the program has all connections of the *sql.DB: end its transactions, or raise SetMaxOpenConns"},
		{verdict: refused, texts: []string{"unable to open database file"},
			text: "the database file cannot be opened: see that its folder is there and may be written to, and " +
				"that this process may open more files (ulimit -n)"},
		{verdict: unknown, texts: []string{"disk I/O error"}, text: "the database file or its -wal could not be " +
			"read or written: check the disk; if -wal or -shm was deleted while processes used the database, end " +
			"them, then try again"},
		{verdict: refused, texts: []string{"database or disk is full"}, text: "there is no room: make some on the " +
			"disk"},
	},
}
