package sqllock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/internal/swapsql"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
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
	Table: reply.Table{Dialect: swapsql.SQLite, Advice: sqliteAdvice}, conns: newSQLite, examine: examineSQLite,
}

var sqliteAdvice = []reply.Advice{
	{Verdict: reply.Lasting, Texts: []string{"no such table"}, Text: "a table of fencelock is missing: set " +
		"Options.CreateTables, or run what fencelock schema sqlite prints"},
	{Verdict: reply.Lasting, Texts: readOnlyTexts, Text: "the database may not be written to"},
	{Verdict: reply.Lasting, Texts: []string{"disk image is malformed", "file is not a database"},
		Text: "the database file is damaged: restore it, or start with a new one"},
	{Verdict: reply.Refused, Texts: busyTexts,
		Text: "another connection has the file locked for long: end its transaction"},
	{Verdict: reply.Refused, Texts: []string{errNoTurn.Error()},
		Text: "calls of this process that came first have waited for the file since"},
	{Verdict: reply.Refused, Texts: []string{errNotOpen.Error()},
		Text: "its disk, or this machine, was too slow for the time that the call had"},
	{Verdict: reply.Refused, Texts: []string{errAllInUse.Error()},
		Text: "the program has all connections of the *sql.DB: end its transactions, or raise SetMaxOpenConns"},
	{Verdict: reply.Refused, Texts: []string{"unable to open database file"},
		Text: "the database file cannot be opened: see that its folder is there and may be written to, and " +
			"that this process may open more files (ulimit -n)"},
	{Verdict: reply.Unknown, Texts: []string{"disk I/O error"}, Text: "the database file or its -wal could not be " +
		"read or written: check the disk; if -wal or -shm was deleted while processes used the database, end " +
		"them, then try again"},
	{Verdict: reply.Refused, Texts: []string{"database or disk is full"}, Text: "there is no room: make some on the " +
		"disk"},
}
