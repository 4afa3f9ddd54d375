package driverutil_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
)

func TestOutcomesOfErrors(t *testing.T) {
	cause := errors.New("a cause")
	now, good := driver.Refused(cause), driver.Permanent(cause)
	for _, tt := range []struct {
		name             string
		err              error
		refused, forGood bool
	}{
		{"refused", now, true, false},
		{"refused, wrapped", fmt.Errorf("x: %w", now), true, false},
		{"for good", good, true, true},
		{"no answer", cause, false, false},
		{"refused, unsettled", driverutil.Unsettled(fmt.Errorf("x: %w", now)), false, false},
		{"for good, unsettled", driverutil.Unsettled(good), false, true},
		{"no answer, unsettled", driverutil.Unsettled(cause), false, false},
		{"refused, unsettled twice", fmt.Errorf("y: %w", driverutil.Unsettled(driverutil.Unsettled(now))), false, false},
	} {
		if errors.Is(tt.err, driver.ErrRefused) != tt.refused || errors.Is(tt.err, driver.ErrPermanent) != tt.forGood ||
			!errors.Is(tt.err, cause) {
			t.Errorf("%s: %#v is taken for another outcome", tt.name, tt.err)
		}
	}
	steps.Well(t, "no error became one", driverutil.Unsettled(nil))
}

func TestAlarmsCallSubscribersInOrderUntilTheyStop(t *testing.T) {
	var a driverutil.Alarms
	var got []string
	stopFirst := a.Subscribe(func(id string, gone driver.GoneError) { got = append(got, "first "+id+" "+gone.Reason) })
	defer a.Subscribe(func(id string, _ driver.GoneError) {
		got = append(got, "second "+id)
		stopFirst() // a subscriber may change the list while it is called
	})()
	a.Notify("1", driver.GoneError{Reason: "why"})
	steps.Same(t, "subscribers that are left", a.Len(), 1)
	a.Notify("2", driver.GoneError{})
	steps.Same(t, "they were called as", strings.Join(got, ","), "first 1 why,second 1,second 2")
}
