package sqllock

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
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
			if got := mysql.Code(err); got != want {
				t.Errorf("the number of %q is %q; want %q", err, got, want)
			}
		}
	}
	s := &pool{config: config{dialect: &mysql}}
	if mysql.Code(nil) != "" || s.undone(nil) || !s.undone(fmt.Errorf("x: %w", sqldriver.ErrBadConn)) {
		t.Error("no error, or one of a connection that sent nothing, was taken for another")
	}
}

func TestSchemaHasOneStatementBetweenSemicolons(t *testing.T) {
	schema, err := Schema(MySQL, &Options{Prefix: "app_"})
	steps.Must(t, err)
	tables := 0
	for statement := range strings.SplitSeq(withoutComments(schema), ";") {
		switch statement = strings.TrimSpace(statement); {
		case strings.HasPrefix(statement, "CREATE TABLE IF NOT EXISTS app_"):
			tables++
		case statement == "", strings.HasPrefix(statement, "INSERT INTO app_meta"):
		default:
			t.Errorf("%q is no statement of the schema", statement)
		}
		if strings.Contains(statement, "fencelock_") {
			t.Errorf("%s is of another set of tables", statement)
		}
	}
	if want := strings.Count(schema, "CREATE TABLE"); tables != want {
		t.Errorf("%d tables were found; want %d", tables, want)
	}
}
