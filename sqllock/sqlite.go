package sqllock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// sqlite is the store on SQLite.
type sqlite struct {
	config
	turn    chan struct{}            // held by the step that writes: SQLite has one writer
	reading chan struct{}            // held by the steps that read
	opening chan struct{}            // held by the call that opens the file
	opened  atomic.Pointer[database] // the last opening; nil until the file is open
}

// maxReaders bounds the connections that read at a time.
const maxReaders = 4

func openSQLite(c config) *steps {
	s := &sqlite{
		config: c, opening: make(chan struct{}, 1),
		turn: make(chan struct{}, 1), reading: make(chan struct{}, maxReaders),
	}
	return &steps{c, s, func(text string) any { return text }}
}

// ready opens the file.
func (s *sqlite) ready(ctx context.Context) error {
	_, err := s.database(ctx)
	return err
}

// ignoresContext: opening the file, and a busy timeout, may take long.
func (s *sqlite) ignoresContext() bool {
	d := s.current()
	return d == nil || d.timeout > 0
}

func (s *sqlite) close() {
	if d := s.current(); d != nil {
		d.end()
	}
}

// leases: a renewal is one transaction.
func (s *sqlite) leases(ts []driver.Ticket) []any { return []any{ts} }

func (s *sqlite) renewAtOnce() int { return 1000 }

func (s *sqlite) notifier() notifier { return watchFile(s.path()) }

func (s *sqlite) notify() { notifyFile(s.path()) }

// path is where the database file is; empty if it is in memory or not open.
func (s *sqlite) path() string {
	if d := s.current(); d != nil {
		return d.file.path
	}
	return ""
}

// says reports that err has one of SQLite's own texts. No driver is imported for their codes:
// all drivers pass the texts on.
func says(err error, texts ...string) bool {
	return err != nil && !isAnswer(err) &&
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// busy reports that a transaction was not applied because somebody else was at it.
func busy(err error) bool {
	return says(err, "database is locked", "table is locked", "locking protocol")
}

func noTable(err error) bool { return says(err, "no such table") }

func cannotOpen(err error) bool { return says(err, "unable to open database file") }

// retryBusy calls f until the database is not busy, or ctx ends. A transaction takes some
// tens of µs, so does the first wait; transactions of others may take longer.
func retryBusy(ctx context.Context, f func() error) error {
	return retry(ctx, busy, 100*time.Microsecond, 4*time.Millisecond, f)
}

// fail says what went wrong, and whether asking again is of use.
func (s *sqlite) fail(what, key string, err error) error {
	return failure(s.name, what, key, err, sqliteAdvice)
}

func sqliteAdvice(err error) (advice string, v verdict) {
	switch {
	case noTable(err):
		return "a table of fencelock is missing: set Options.CreateTables, or run what fencelock schema sqlite " +
			"prints", lasting
	case says(err, "readonly database", "access permission denied", "authorization denied"):
		return "the database may not be written to", lasting
	case says(err, "disk image is malformed", "file is not a database"):
		return "the database file is damaged: restore it, or start with a new one", lasting
	case busy(err):
		return "another connection has the file locked for long: end its transaction", refused
	case errors.Is(err, errNoTurn):
		return "calls of this process that came first have waited for the file since", refused
	case errors.Is(err, errNotOpen):
		return "its disk, or this machine, was too slow for the time that the call had", refused
	case errors.Is(err, errAllInUse):
		return "the program has all connections of the *sql.DB: end its transactions, or raise SetMaxOpenConns", refused
	case cannotOpen(err):
		return "the database file cannot be opened: see that its folder is there and may be written to", refused
	case says(err, "disk I/O error"):
		return "the database file or its -wal could not be read or written: check the disk; if -wal or -shm was " +
			"deleted while processes used the database, end them, then try again", unknown
	case says(err, "database or disk is full"):
		return "there is no room: make some on the disk", refused
	}
	return "", unknown
}
