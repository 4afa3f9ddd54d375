package sqllock

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNumbersOfMySQLErrorsAreReadFromTheirText(t *testing.T) {
	for text, want := range map[string]string{
		"Error 1213 (40001): Deadlock found when trying to get lock": "1213",
		"Error 1205: Lock wait timeout exceeded":                     "1205",
		"Error 1213":                                                 "",
		"Error : nothing":                                            "",
		"invalid connection":                                         "",
		"the Error 1213 (40001): x":                                  "",
	} {
		err := errors.New(text)
		for _, err := range []error{err, fmt.Errorf("enter: %w", err), fmt.Errorf("a: %w", fmt.Errorf("b: %w", err))} {
			if got := mysqlCode(err); got != want {
				t.Errorf("the number of %q is %q; want %q", err, got, want)
			}
		}
	}
	s := &server{errors: &mysqlErrors}
	if mysqlCode(nil) != "" || s.undone(nil) || !s.undone(fmt.Errorf("x: %w", sqldriver.ErrBadConn)) {
		t.Error("no error, or one of a connection that sent nothing, was taken for another")
	}
}

func TestScriptIsSplitAtItsDelimiters(t *testing.T) {
	n, err := newNames("app_")
	if err != nil {
		t.Fatal(err)
	}
	procedures := 0
	for _, statement := range n.script(mysqlSchema) {
		first, _, _ := strings.Cut(statement, "(")
		switch {
		case strings.HasPrefix(first, "CREATE PROCEDURE IF NOT EXISTS app_v1_"):
			procedures++
			if !strings.HasSuffix(strings.TrimSpace(statement), "END") {
				t.Errorf("%s does not end where it should: …%q", first, statement[max(0, len(statement)-40):])
			}
		case strings.HasPrefix(first, "CREATE TABLE IF NOT EXISTS app_"), strings.HasPrefix(first, "SET SESSION "),
			strings.HasPrefix(first, "INSERT IGNORE INTO app_meta"):
		default:
			t.Errorf("%q is no statement of the schema", statement)
		}
		if strings.Contains(statement, "fencelock_") || strings.Contains(statement, "DELIMITER") {
			t.Errorf("%s is of another set of tables, or for a client", first)
		}
	}
	if want := strings.Count(mysqlSchema, "CREATE PROCEDURE"); procedures != want {
		t.Errorf("%d procedures were found; want %d", procedures, want)
	}
}
