package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/storeurl"
)

// What is said of a call that the store did not do, and the exit code: only a store that gave no
// answer "does not answer".
func TestOutcomesHaveTheirWords(t *testing.T) {
	u, err := storeurl.Parse("mysql://u@h/d", storeurl.Source{Name: "--url"})
	must(t, err)
	s := &store{URL: u, source: "--url"}
	told := func(err error) error { return fmt.Errorf("lock n: %w: %w", fencelock.ErrUnavailable, err) }
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{told(driver.Refused(errors.New("READONLY x"))), exitUnavailable,
			`"n": mysql h:3306/d refuses for now: READONLY x; nothing happened; solve that on the server, then try again`},
		{told(driverutil.Unsettled(driver.Refused(&mysql.MySQLError{Number: 1290, Message: "x"}))), exitUnavailable,
			`"n": mysql h:3306/d answers with an error: Error 1290: x; solve that on the server, then try again`},
		{told(&mysql.MySQLError{Number: 1317, Message: "interrupted"}), exitUnavailable,
			`"n": mysql h:3306/d answers with an error: Error 1317: interrupted; solve that on the server, then try again`},
		{told(errors.New("connection refused")), exitUnavailable,
			`"n": mysql h:3306/d does not answer: connection refused; check that the server runs and can be reached, and --url`},
		{told(driver.Permanent(errors.New("a right is missing"))), exitConfig, `"n": mysql h:3306/d: a right is missing`},
	} {
		var own *failure
		if err := explain(s, "n", tt.err); !errors.As(err, &own) || own.code != tt.code || own.text != tt.text {
			t.Errorf("%v\n is told as: %v\n       want: %s, code %d", tt.err, err, tt.text, tt.code)
		}
	}
}
