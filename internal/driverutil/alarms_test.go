package driverutil_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

func TestAlarmsCallSubscribersInOrderUntilTheyStop(t *testing.T) {
	var a driverutil.Alarms
	var got []string
	stopFirst := a.Subscribe(func(id string, gone driver.GoneError) { got = append(got, "first "+id+" "+gone.Reason) })
	defer a.Subscribe(func(id string, _ driver.GoneError) {
		got = append(got, "second "+id)
		stopFirst() // a subscriber may change the list while it is called
	})()
	a.Notify("1", driver.GoneError{Reason: "why"})
	if a.Len() != 1 {
		t.Errorf("%d subscribers are left; want 1", a.Len())
	}
	a.Notify("2", driver.GoneError{})
	if want := "first 1 why,second 1,second 2"; strings.Join(got, ",") != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
