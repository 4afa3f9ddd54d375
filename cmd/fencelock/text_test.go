package main

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/storeurl"
)

func TestBareNumbersAreSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "0.5": 500 * time.Millisecond, ".25": 250 * time.Millisecond, "90": 90 * time.Second,
		"1e3": 1000 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "0s": 0, "9223372035": 9223372035 * time.Second,
	} {
		if got, err := parseSeconds(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1s", "1x", "NaN", "Inf", "-Inf", "1e300", "9223372037", "1 s", "3000000h"} {
		if got, err := parseSeconds(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestSlotsAreHoursDaysAndTimes(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ slot, zone, now, want string }{
		{"hour", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T14:00:00Z"},
		{"day", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T00:00:00Z"},
		{"day", "Asia/Shanghai", "2026-11-20T17:00:00Z", "2026-11-20T16:00:00Z"},
		{"hour", "Asia/Kolkata", "2026-11-20T14:37:12Z", "2026-11-20T14:30:00Z"},
		// The clocks of New York went back at 06:00Z: 01:xx came twice, as two slots.
		{"hour", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T05:00:00Z"},
		{"hour", "America/New_York", "2026-11-01T06:30:00Z", "2026-11-01T06:00:00Z"},
		{"day", "America/New_York", "2026-11-02T04:59:59Z", "2026-11-01T04:00:00Z"},
		{"2026-11-20T20:00Z", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T20:00:00Z"},
		{"2026-11-20T20:00:30Z", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T20:00:30Z"},
		{"2026-11-20T20:00+08:00", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T12:00:00Z"},
		{"2026-11-20T20:00", "Asia/Shanghai", "2026-11-20T14:37:12Z", "2026-11-20T12:00:00Z"},
		{"2026-11-20", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T00:00:00Z"},
	} {
		got, err := parseSlot(c.slot, c.zone, at(c.now))
		if err != nil || !got.Equal(at(c.want)) {
			t.Errorf("slot %s in %s at %s is %v, %v; want %s", c.slot, c.zone, c.now, got, err, c.want)
		}
	}
	for _, slot := range []string{"", "week", "20:00", "2026-13-01", "0001-01-01T00:00:00Z"} {
		if got, err := parseSlot(slot, "UTC", at("2026-11-20T14:37:12Z")); err == nil {
			t.Errorf("slot %q was read as %v", slot, got)
		}
	}
}

func TestHelpNamesEveryScheme(t *testing.T) {
	for _, name := range storeurl.Schemes() {
		if !strings.Contains(rootHelp, name+":") {
			t.Errorf("the help text does not name %s:", name)
		}
	}
}
