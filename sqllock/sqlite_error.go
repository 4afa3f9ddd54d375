package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Result codes of SQLite.
const (
	codePerm, codeBusy, codeLocked, codeReadOnly = 3, 5, 6, 8
	codeIOErr                                    = 10
	codeCorrupt, codeFull, codeCantOpen          = 11, 13, 14
	codeProtocol, codeConstraint                 = 15, 19
	codeAuth, codeNotADB                         = 23, 26
)

// code returns the primary result code of a driver's error, or 0. No driver is
// imported for it: modernc.org/sqlite and others have a method, and all of them
// pass on SQLite's own texts.
func code(err error) int {
	if err == nil {
		return 0
	}
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	text := err.Error()
	for _, known := range []struct {
		text string
		code int
	}{
		{"database is locked", codeBusy},
		{"table is locked", codeLocked},
		{"locking protocol", codeProtocol},
		{"readonly database", codeReadOnly},
		{"disk I/O error", codeIOErr},
		{"disk image is malformed", codeCorrupt},
		{"file is not a database", codeNotADB},
		{"database or disk is full", codeFull},
		{"unable to open database file", codeCantOpen},
		{"constraint failed", codeConstraint},
		{"cannot store REAL value", codeConstraint},
	} {
		if strings.Contains(text, known.text) {
			return known.code
		}
	}
	return 0
}

// busy reports that a transaction was not applied because somebody else was at it.
func busy(err error) bool {
	switch code(err) {
	case codeBusy, codeLocked, codeProtocol:
		return true
	}
	return false
}

func missing(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table")
}

func cannotOpen(err error) bool { return code(err) == codeCantOpen }

// noTransaction reports that SQLite had rolled back by itself, as it does when the
// disk is full.
func noTransaction(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}

func constrained(err error) bool { return code(err) == codeConstraint }

func permanent(err error) error { return &driver.PermanentError{Err: err} }

// fail says what went wrong, and whether asking again is of use.
func (s *sqlite) fail(what string, err error) error {
	if err == nil || answer(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch c := code(err); {
	case missing(err):
		return permanent(fmt.Errorf("sqlite: a table of fencelock is missing: set Options.CreateTables, or run what "+
			"fencelock schema sqlite prints: %w",
			err))
	case c == codeReadOnly || c == codePerm || c == codeAuth:
		return permanent(fmt.Errorf("sqlite: cannot %s, the database may not be written to: %w", what, err))
	case c == codeCorrupt || c == codeNotADB:
		return permanent(fmt.Errorf("sqlite: cannot %s, the database file is damaged: restore it, or start with a new one: "+
			"%w",
			what, err))
	case c == codeIOErr:
		return fmt.Errorf("sqlite: cannot %s, the database file or its -wal could not be read or written: check "+
			"the disk; if -wal or -shm was deleted while processes used the database, end them, "+
			"then try again: %w",
			what, err)
	case c == codeFull:
		return fmt.Errorf("sqlite: cannot %s, there is no room: make some on the disk: %w", what, err)
	case strings.Contains(err.Error(), "sql: database is closed"):
		return permanent(fmt.Errorf("sqlite: cannot %s, the program has closed the database", what))
	}
	return fmt.Errorf("sqlite: cannot %s: %w", what, err)
}

// How long to wait before a busy database is tried again. A transaction takes some tens of
// µs, so does the first wait; transactions of others may take longer.
const firstWait, longestWait = 100 * time.Microsecond, 4 * time.Millisecond

// retry calls f until the database is not busy, or ctx ends.
func retry(ctx context.Context, f func() error) error {
	for wait := firstWait; ; wait = min(wait*3/2, longestWait) {
		err := f()
		if !busy(err) {
			return err
		}
		// Half of it at random, or two processes that collide would do so again.
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
