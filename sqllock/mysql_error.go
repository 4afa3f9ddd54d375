package sqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// mysqlCode returns the number of a server's error, or 0. No driver is imported for it:
// the usual ones begin the text of such an error with "Error 1213 (40001): ", or with
// the same without the state.
func mysqlCode(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		rest, ok := strings.CutPrefix(err.Error(), "Error ")
		if !ok {
			continue
		}
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits < len(rest) && (rest[digits] == ':' || rest[digits] == ' ') {
			code, _ := strconv.Atoi(rest[:digits])
			return code
		}
	}
	return 0
}

// undone reports that the server did not do a step, and that it may be asked again at
// once. Of a time-out of a lock only the statement is undone by the server; the rest is
// rolled back by the procedure it was in.
func undone(err error) bool {
	switch mysqlCode(err) {
	case 1205, // lock wait timeout
		1213, // deadlock
		1020, // a row has changed since the snapshot
		1412, // a table was altered meanwhile
		1637: // too many transactions
		return true
	}
	// database/sql's own word for "nothing was sent".
	return errors.Is(err, sqldriver.ErrBadConn)
}

func missingInMySQL(err error) bool {
	switch mysqlCode(err) {
	case 1146, 1305: // no such table, no such procedure
		return true
	}
	return false
}

func existsInMySQL(err error) bool {
	switch mysqlCode(err) {
	case 1050, 1304: // the table, the procedure
		return true
	}
	return false
}

// fail says what went wrong, and whether asking again is of use.
func (s *mysql) fail(what string, err error) error {
	if err == nil || answer(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch mysqlCode(err) {
	case 1146, 1305:
		return permanent(fmt.Errorf("mysql: a table or a procedure of fencelock is missing: set Options.CreateTables, or run what fencelock schema mysql prints: %w", err))
	case 1046:
		return permanent(fmt.Errorf("mysql: cannot %s, no database is chosen: name one in the DSN: %w", what, err))
	case 1049:
		return permanent(fmt.Errorf("mysql: cannot %s, there is no such database: create it, or name another in the DSN: %w", what, err))
	case 1045, 1130, 1251, 1698, 2054, 2059,
		1820, 1862, // the password has expired
		3118, 4151: // the account is locked, in MySQL and in MariaDB
		return permanent(fmt.Errorf("mysql: cannot %s, the server refuses the user or the password: check both: %w", what, err))
	case 1044, 1142, 1143, 1227, 1370, 1419:
		return permanent(fmt.Errorf("mysql: cannot %s, a right is missing: the user needs SELECT, INSERT, UPDATE, DELETE and EXECUTE in the database, and CREATE and CREATE ROUTINE to create the tables: %w", what, err))
	case 1665:
		return permanent(fmt.Errorf("mysql: cannot %s, the server's binary log cannot take it: set binlog_format to MIXED or ROW: %w", what, err))
	case 1264, 1690, 3819, 4025:
		return permanent(fmt.Errorf("mysql: cannot %s, rows in the tables are damaged: delete the rows of this lock from all tables, then try again: %w", what, err))
	}
	if strings.Contains(err.Error(), "sql: database is closed") {
		return permanent(fmt.Errorf("mysql: cannot %s, the program has closed the database", what))
	}
	return fmt.Errorf("mysql: cannot %s: %w", what, err)
}

// How long to wait before a step is tried again whose transaction was undone. Whoever
// was in its way is most likely done within the first wait.
const firstUndone, longestUndone = 500 * time.Microsecond, 50 * time.Millisecond

// retryMySQL calls f until it is not undone, or ctx ends.
func retryMySQL(ctx context.Context, f func() error) error {
	for wait := firstUndone; ; wait = min(wait*2, longestUndone) {
		err := f()
		if !undone(err) {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
