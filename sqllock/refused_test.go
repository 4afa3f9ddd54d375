package sqllock

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/swapsql"
)

type stateError string

func (e stateError) Error() string    { return "the server says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// Three outcomes: the step may have happened; the server refused it for now; it will never do it.
func TestServerErrorsSayWhatBecameOfTheStep(t *testing.T) {
	mysqlError := func(code string) error { return fmt.Errorf("Error %s (HY000): text", code) }
	for _, tt := range []struct {
		dialect *dialect
		make    func(code string) error
		want    map[string]string
	}{
		{&postgres, func(code string) error { return stateError(code) }, map[string]string{
			"40001": "refused", "55P03": "refused", "25006": "refused", "53300": "refused", "57P03": "refused", "53100": "refused",
			"57P01": "unknown", "08006": "unknown", "XX000": "unknown", "58030": "unknown",
			"42501": "for good", "28P01": "for good",
		}},
		{&mysql, mysqlError, map[string]string{
			"1036": "refused", "1047": "refused", "1205": "refused", "1114": "refused", "1129": "refused", "1290": "refused", "1836": "refused", "1040": "refused", "1203": "refused",
			"2013": "unknown", "1053": "unknown", "1317": "unknown",
			"1142": "for good", "1045": "for good", "3159": "for good",
		}},
	} {
		s := &pool{config: config{prefix: swapsql.DefaultPrefix, dialect: tt.dialect}}
		for code, want := range tt.want {
			told(t, code, s.fail("enter", "key", tt.make(code)), want)
		}
	}
}

// told checks which of the three outcomes err tells of.
func told(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := "unknown"
	switch {
	case errors.Is(err, driver.ErrPermanent):
		got = "for good"
	case driverutil.RefusedForNow(err):
		got = "refused"
	}
	if got != want || errors.Is(err, driver.ErrRefused) == (want == "unknown") {
		t.Errorf("%s is %s, want %s: %v", what, got, want, err)
	}
}

// PgBouncer has one code for what it refuses and for what broke.
func TestPoolersSayWhatBecameOfTheStep(t *testing.T) {
	s := &pool{config: config{dialect: &postgres}}
	for text, want := range map[string]string{
		"no more connections allowed (max_client_conn)":                             "refused",
		"query_wait_timeout":                                                        "refused",
		"server login has been failing, try again later (server_login_retry)":       "refused",
		"server login failed: FATAL sorry, too many clients already":                "refused",
		"server conn crashed?":                                                      "unknown",
		"query_timeout":                                                             "unknown",
		"terminating connection because backend initialization completed past this": "unknown",
	} {
		told(t, text, s.fail("enter", "key", pgError{stateError("08P01"), text}), want)
	}
}

type pgError struct {
	stateError
	text string
}

func (e pgError) Error() string { return "FATAL: " + e.text + " (SQLSTATE 08P01)" }

func TestSQLiteSaysWhatBecameOfTheStep(t *testing.T) {
	s := &sqlite{config: config{dialect: &onSQLite}}
	for text, want := range map[string]string{
		"database is locked (5) (SQLITE_BUSY)":       "refused",
		"database or disk is full (13)":              "refused",
		"unable to open database file (14)":          "refused",
		"disk I/O error (10)":                        "unknown",
		"interrupted (9)":                            "unknown",
		"attempt to write a readonly database (8)":   "for good",
		"SQL logic error: no such table: x (1)":      "for good",
		"database disk image is malformed (11)":      "for good",
		"file is not a database (26)":                "for good",
		"the driver says something that is not know": "unknown",
	} {
		told(t, text, s.fail("enter", "key", errors.New(text)), want)
	}
}

// A step that was tried again until its context ended has done nothing if the last try says so.
func TestEndOfATryAgainSaysWhatKeptIt(t *testing.T) {
	for last, want := range map[error]string{
		errors.New("database is locked (5)"): "refused",
		errMoved:                             "unknown",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := retry(ctx, func(error) bool { return true }, 1, 1, func() error { cancel(); return last })
		err = (&config{dialect: &onSQLite}).fail("enter", "key", err)
		told(t, last.Error(), err, want)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not match the end of its context", err)
		}
	}
}
