package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
)

func TestValidateRefusesWhatNoBackendCanKeep(t *testing.T) {
	info := driver.Info{Name: "store", Fair: true, MinTTL: time.Second, MaxTTL: time.Hour}
	good := driver.Claim{Key: "k", ID: "id", Capacity: driver.RW, Weight: driver.RW, TTL: time.Minute, Span: 1}
	if err := good.Validate(info); err != nil {
		t.Fatalf("a good claim is refused: %v", err)
	}
	tests := []struct {
		name  string
		spoil func(c *driver.Claim, info *driver.Info)
	}{
		{"no key", func(c *driver.Claim, _ *driver.Info) { c.Key = "" }},
		{"long key", func(c *driver.Claim, _ *driver.Info) { c.Key = strings.Repeat("k", limit.Key+1) }},
		{"no ID", func(c *driver.Claim, _ *driver.Info) { c.ID = "" }},
		{"long ID", func(c *driver.Claim, _ *driver.Info) { c.ID = strings.Repeat("i", 256+1) }},
		{"long owner", func(c *driver.Claim, _ *driver.Info) { c.Owner = strings.Repeat("o", limit.Owner+1) }},
		{"long note", func(c *driver.Claim, _ *driver.Info) { c.Note = strings.Repeat("n", limit.Note+1) }},
		{"long trace", func(c *driver.Claim, _ *driver.Info) { c.Trace = strings.Repeat("t", limit.Owner+1) }},
		{"short lock-delay", func(c *driver.Claim, _ *driver.Info) { c.LockDelay = time.Second - 1 }},
		{"negative lock-delay", func(c *driver.Claim, _ *driver.Info) { c.LockDelay = -1 }},
		{"long lock-delay", func(c *driver.Claim, _ *driver.Info) { c.LockDelay = time.Hour + 1 }},
		{"no capacity", func(c *driver.Claim, _ *driver.Info) { c.Capacity = 0 }},
		{"capacity above RW", func(c *driver.Claim, _ *driver.Info) { c.Capacity = driver.RW + 1 }},
		{"no weight", func(c *driver.Claim, _ *driver.Info) { c.Weight = 0 }},
		{"weight above capacity", func(c *driver.Claim, _ *driver.Info) { c.Capacity, c.Weight = 3, 4 }},
		{"two readers in one claim", func(c *driver.Claim, _ *driver.Info) { c.Weight = 2 }},
		{"semaphore where none is safe", func(c *driver.Claim, i *driver.Info) { c.Capacity, c.Weight, i.Fair = 3, 1, false }},
		{"no TTL", func(c *driver.Claim, i *driver.Info) { c.TTL, i.MinTTL = 0, 0 }},
		{"short TTL", func(c *driver.Claim, _ *driver.Info) { c.TTL = time.Second - 1 }},
		{"long TTL", func(c *driver.Claim, _ *driver.Info) { c.TTL = time.Hour + 1 }},
		{"short lease for the wait", func(c *driver.Claim, _ *driver.Info) { c.WaitTTL = time.Second - 1 }},
		{"longer lease for the wait", func(c *driver.Claim, _ *driver.Info) { c.WaitTTL = time.Minute + 1 }},
		{"negative lease for the wait", func(c *driver.Claim, i *driver.Info) { c.WaitTTL, i.MinTTL = -1, 0 }},
		{"no span", func(c *driver.Claim, _ *driver.Info) { c.Span = 0 }},
		{"long span", func(c *driver.Claim, _ *driver.Info) { c.Span = limit.Span + 1 }},
		{"negative ballot", func(c *driver.Claim, i *driver.Info) { c.Ballot = -1 }},
	}
	for _, test := range tests {
		c, i := good, info
		test.spoil(&c, &i)
		err := c.Validate(i)
		if !errors.Is(err, driver.ErrPermanent) || !strings.HasPrefix(err.Error(), "store: ") {
			t.Errorf("%s: got %v; want ErrPermanent that names the backend", test.name, err)
		}
	}
}

func TestValidateTakesTheLimitsThemselves(t *testing.T) {
	info := driver.Info{Name: "store", Fair: true, MinTTL: time.Second, MaxTTL: time.Hour}
	c := driver.Claim{
		Key: strings.Repeat("\xff", limit.Key), ID: strings.Repeat("i", 256),
		Owner: strings.Repeat("o", limit.Owner), Note: strings.Repeat("n", limit.Note),
		Trace: strings.Repeat("t", limit.Owner), LockDelay: time.Second,
		Capacity: driver.RW - 1, Weight: driver.RW - 1, Span: limit.Span, Ballot: 1,
	}
	for _, ttl := range []time.Duration{time.Second, time.Hour} {
		c.TTL = ttl
		steps.Well(t, ttl, c.Validate(info))
	}
}
