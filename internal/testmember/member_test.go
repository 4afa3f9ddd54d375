package testmember_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testmember"
)

// A member keeps all laws, and those of ballots.
func TestMemberKeepsTheLaws(t *testing.T) {
	m := testmember.New(ballot.Membership{})
	if err := m.Initialise(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := func(*testing.T) driver.Backend { return m }
	fresh := func(*testing.T) driver.Backend { return testmember.New(ballot.Membership{}) }
	drivertest.Run(t, open, drivertest.KeepsServing(), drivertest.ExpiryLag(time.Millisecond),
		drivertest.Lease(60*time.Millisecond), drivertest.Fresh(t, fresh))
	drivertest.Model(t, open, 1, 2, 3)
}
