package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
)

func TestOutcomesOfErrors(t *testing.T) {
	cause := errors.New("a cause")
	now, good := &driver.RefusedError{Err: cause}, &driver.PermanentError{Err: cause}
	for _, tt := range []struct {
		name             string
		err              error
		refused, forGood bool
	}{
		{"refused", now, true, false},
		{"refused, wrapped", fmt.Errorf("x: %w", now), true, false},
		{"for good", good, true, true},
		{"no answer", cause, false, false},
		{"refused, unsettled", driver.Unsettled(fmt.Errorf("x: %w", now)), false, false},
		{"for good, unsettled", driver.Unsettled(good), false, true},
		{"no answer, unsettled", driver.Unsettled(cause), false, false},
		{"refused, unsettled twice", fmt.Errorf("y: %w", driver.Unsettled(driver.Unsettled(now))), false, false},
	} {
		if errors.Is(tt.err, driver.ErrRefused) != tt.refused || errors.As(tt.err, new(*driver.PermanentError)) != tt.forGood ||
			errors.As(tt.err, new(*driver.RefusedError)) != (tt.refused && !tt.forGood) || !errors.Is(tt.err, cause) {
			t.Errorf("%s: %#v is taken for another outcome", tt.name, tt.err)
		}
	}
	if driver.Unsettled(nil) != nil {
		t.Error("no error became one")
	}
}
