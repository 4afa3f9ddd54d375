package main

import (
	"testing"
	"time"
)

func TestSlotOfADayIsCountedFromMidnight(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(zone *time.Location, h, m, s int) time.Time { return time.Date(2026, 11, 24, h, m, s, 7, zone) }
	for _, tt := range []struct {
		now   time.Time
		slot  string
		begin string // in the zone of now
	}{
		{at(time.UTC, 23, 59, 59), "5m", "2026-11-24T23:55:00Z"},
		{at(time.UTC, 0, 0, 0), "5m", "2026-11-24T00:00:00Z"},
		{at(time.UTC, 13, 0, 1), "6h", "2026-11-24T12:00:00Z"},
		{at(berlin, 0, 59, 0), "1h", "2026-11-24T00:00:00+01:00"},
		{at(berlin, 13, 1, 0), "24h", "2026-11-24T00:00:00+01:00"},
		// The clocks went back at three: that hour is there twice, and each has its slots.
		{time.Date(2026, 10, 25, 0, 10, 0, 0, time.UTC).In(berlin), "15m", "2026-10-25T02:00:00+02:00"},
		{time.Date(2026, 10, 25, 1, 10, 0, 0, time.UTC).In(berlin), "15m", "2026-10-25T02:00:00+01:00"},
	} {
		got, err := parseSlot(tt.slot, tt.now.Location().String(), tt.now)
		if err != nil || got.Format(time.RFC3339) != tt.begin {
			t.Errorf("%v, --slot %s: %v, %v; want %s", tt.now, tt.slot, got, err, tt.begin)
		}
	}
	for _, bad := range []string{"7m", "48h", "0s", "-5m", "500ms"} {
		if got, err := parseSlot(bad, "UTC", at(time.UTC, 1, 2, 3)); err == nil {
			t.Errorf("--slot %s is %v; want an error", bad, got)
		}
	}
}
