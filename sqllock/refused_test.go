package sqllock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

type stateError string

func (e stateError) Error() string    { return "the server says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// Three outcomes: the step may have happened; the server refused it for now; it will never do it.
func TestServerErrorsSayWhatBecameOfTheStep(t *testing.T) {
	names, err := newNames("")
	if err != nil {
		t.Fatal(err)
	}
	mysqlError := func(code string) error { return fmt.Errorf("Error %s (HY000): text", code) }
	for _, tt := range []struct {
		errs *serverErrors
		make func(code string) error
		want map[string]string
	}{
		{&postgresErrors, func(code string) error { return stateError(code) }, map[string]string{
			"25006": "refused", "53300": "refused", "57P03": "refused", "53100": "refused",
			"57P01": "unknown", "08006": "unknown", "XX000": "unknown", "58030": "unknown",
			"42501": "for good", "28P01": "for good",
		}},
		{&mysqlErrors, mysqlError, map[string]string{
			"1290": "refused", "1836": "refused", "1040": "refused", "1203": "refused",
			"2013": "unknown", "1053": "unknown", "1317": "unknown",
			"1142": "for good", "1045": "for good",
		}},
	} {
		s := &server{config: config{names: names}, errors: tt.errs}
		for code, want := range tt.want {
			err := s.fail("enter", "key", tt.make(code))
			got := "unknown"
			switch {
			case errors.As(err, new(*driver.PermanentError)):
				got = "for good"
			case errors.As(err, new(*driver.RefusedError)):
				got = "refused"
			}
			if got != want || errors.Is(err, driver.ErrRefused) == (want == "unknown") {
				t.Errorf("%s is %s, want %s: %v", code, got, want, err)
			}
		}
	}
}
