package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Error codes of PostgreSQL, and of poolers that speak like it.
const (
	undefinedTable    = "42P01"
	undefinedFunction = "42883"
)

// state returns the SQLSTATE of a driver's error, or "". No driver is imported for it:
// the errors of pgx and of lib/pq have this method.
func state(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// rolledBack reports that a statement was rolled back because of what others did at the
// same time, so that it may be repeated: a failure to serialize, a deadlock, or a lock
// that was not to be had within the role's lock_timeout.
func rolledBack(err error) bool {
	switch state(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// How long to wait before a statement is repeated. The one in whose way it was has
// ended by then; the wait is for others that were in its way too.
const shortRest, longRest = time.Millisecond, 50 * time.Millisecond

// retry calls f until it is not rolled back, or ctx ends.
func (p *postgres) retry(ctx context.Context, f func() error) error {
	for wait := shortRest; ; wait = min(wait*3/2, longRest) {
		err := f()
		if !rolledBack(err) {
			return err
		}
		timer := time.NewTimer(rand.N(2 * wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// fail says what went wrong, and whether asking again is of use. Errors of drivers name
// the host and the user, but no password.
func (p *postgres) fail(what string, err error) error {
	if err == nil || answer(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	next := ""
	switch s := state(err); {
	case s == undefinedTable || s == undefinedFunction || s == "42703" || s == "3F000":
		next = "the tables or functions of fencelock are missing: set Options.CreateTables, or run what fencelock schema postgres prints, in the schema that comes first in the search_path"
	case s == "42501":
		next = "the role lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE on the tables " + p.names.prefix + "*, or run what fencelock schema postgres prints as a role that may create tables"
	case s == "28P01" || s == "28000":
		next = "the server does not let us in: check user, password and pg_hba.conf"
	case s == "3D000":
		next = "there is no such database: create it, or correct the URL"
	case s == "26000" || s == "42P05":
		next = "a pooler mixes up prepared statements: open the database with default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq)"
	case s == "22003" || s == "23514":
		next = "the rows of the lock are damaged: delete its rows from all tables " + p.names.prefix + "*, then try again"
	case strings.Contains(err.Error(), "sql: database is closed"):
		return permanent(fmt.Errorf("postgres: cannot %s, the program has closed the database", what))
	default:
		return fmt.Errorf("postgres: cannot %s: %w", what, err)
	}
	return permanent(fmt.Errorf("postgres: cannot %s, %s: %w", what, next, err))
}
