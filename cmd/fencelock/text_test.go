package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/storeurl"
)

var must = steps.Must

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
		must(t, err)
		return v
	}
	for _, c := range []struct{ slot, zone, now, want string }{
		{"hour", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T14:00:00Z"},
		{"day", "Asia/Shanghai", "2026-11-20T17:00:00Z", "2026-11-20T16:00:00Z"},
		{"2026-11-20T20:00Z", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T20:00:00Z"},
		{"2026-11-20T20:00:30Z", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T20:00:30Z"},
		{"2026-11-20T20:00+08:00", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T12:00:00Z"},
		{"2026-11-20T20:00", "Asia/Shanghai", "2026-11-20T14:37:12Z", "2026-11-20T12:00:00Z"},
		{"2026-11-20", "UTC", "2026-11-20T14:37:12Z", "2026-11-20T00:00:00Z"},
		{"2018-11-04", "America/Sao_Paulo", "2026-11-20T14:37:12Z", "2018-11-04T03:00:00Z"}, // it has no midnight
		{"5m", "UTC", "2026-11-20T23:59:59Z", "2026-11-20T23:55:00Z"},
	} {
		got, err := parseSlot(c.slot, c.zone, "", at(c.now))
		if err != nil || !got.Equal(at(c.want)) {
			t.Errorf("slot %s in %s at %s is %v, %v; want %s", c.slot, c.zone, c.now, got, err, c.want)
		}
	}
	for _, slot := range []string{
		"", "week", "20:00", "2026-13-01", "0001-01-01T00:00:00Z", "7m", "48h", "0s", "-5m", "500ms",
	} {
		if got, err := parseSlot(slot, "UTC", "", at("2026-11-20T14:37:12Z")); err == nil {
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

// What cron, systemd and Kubernetes can pass.
func TestScheduledTimeIsReadInEachForm(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ at, zone, want string }{
		{"2026-11-20T08:00:00Z", "UTC", "2026-11-20T08:00:00Z"},
		{"2026-11-20T08:00:00+02:00", "UTC", "2026-11-20T06:00:00Z"},
		{"2026-11-20T08:00", "Asia/Shanghai", "2026-11-20T08:00:00+08:00"},
		{"1795161600", "UTC", "2026-11-20T08:00:00Z"},
		{"1795161602000", "UTC", "2026-11-20T08:00:00Z"},
		{"1795161601999999", "UTC", "2026-11-20T08:00:00Z"},
		{"\"1795161600\"", "UTC", ""},
		{" 1795161600\n", "UTC", "2026-11-20T08:00:00Z"},
		{"nightly-report-v1.2-29919360", "UTC", "2026-11-20T08:00:00Z"},
		{"report-1", "UTC", ""},
		{"-1795161600", "UTC", ""},
		// One more than a day ahead is a mistake: until then nothing would run.
		{"2026-11-21T13:00:00Z", "UTC", ""},
		{"2026-11-21T11:00:00Z", "UTC", "2026-11-21T11:00:00Z"},
	} {
		got, err := parseSlot("1h", c.zone, c.at, now)
		if (err != nil) != (c.want == "") || err == nil && got.Format(time.RFC3339) != c.want {
			t.Errorf("--at %q in %s: %v, %v; want %q", c.at, c.zone, got, err, c.want)
		}
	}
}

// What cron passes on the days when the clock jumps: date +%FT%H:%M, with %z or without.
func TestScheduledTimeWhereTheClockJumps(t *testing.T) {
	for _, c := range []struct{ slot, zone, at, now, want string }{
		// The clock shows half past one twice.
		{"1h", "America/New_York", "2026-11-01T01:30", "2026-11-01T05:30:02Z", "2026-11-01T01:00:00-04:00"},
		{"1h", "America/New_York", "2026-11-01T01:30", "2026-11-01T06:30:02Z", "2026-11-01T01:00:00-05:00"},
		{"1h", "America/New_York", "2026-11-01T01:30-0400", "2026-11-01T06:30:02Z", "2026-11-01T01:00:00-04:00"},
		{"15m", "Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45:01Z", "2026-04-05T01:45:00+11:00"},
		{"15m", "Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T15:15:01Z", "2026-04-05T01:45:00+10:30"},
		{"1h", "America/New_York", "2026-11-01T02:30", "2026-11-01T07:30:02Z", "2026-11-01T02:00:00-05:00"},
		// It shows half past two not at all, and midnight not at all.
		{"1h", "America/New_York", "2026-03-08T02:30", "2026-03-08T07:30:02Z", "2026-03-08T03:00:00-04:00"},
		{"24h", "Africa/Cairo", "2026-04-24T00:00", "2026-04-23T22:00:02Z", "2026-04-24T01:00:00+03:00"},
		// A day that a zone left out, and years that cannot be counted.
		{"24h", "Pacific/Apia", "2011-12-29T00:00", "2011-12-29T10:00:00Z", "2011-12-29T00:00:00-10:00"},
		{"1h", "UTC", "1969-12-31T00:00", "2026-02-28T16:00:00Z", ""},
		{"1h", "UTC", "0000-01-01", "2026-02-28T16:00:00Z", ""},
		{"9999-01-01", "UTC", "", "2026-02-28T16:00:00Z", ""},
		// A name means the same whenever it is said.
		{"2026-11-01T01:30", "America/New_York", "", "2026-11-01T05:30:02Z", "2026-11-01T01:30:00-04:00"},
		{"2026-11-01T01:30", "America/New_York", "", "2026-11-01T06:30:02Z", "2026-11-01T01:30:00-04:00"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		must(t, err)
		got, err := parseSlot(c.slot, c.zone, c.at, now)
		if (err != nil) != (c.want == "") || err == nil && got.Format(time.RFC3339) != c.want {
			t.Errorf("--slot %s --at %q in %s: %v, %v; want %q", c.slot, c.at, c.zone, got, err, c.want)
		}
	}
}

// FuzzSeconds: a time on the command line is never negative, and no overflow.
func FuzzSeconds(f *testing.F) {
	for _, s := range []string{"0", "1.5", "1m30s", "-1", "NaN", "Inf", "1e18", "9223372036", "9223372037", "0x10", "1_0", "", "1h1", "-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseSeconds(s)
		if err == nil && d < 0 {
			t.Errorf("%q is %v", s, d)
		}
		if err == nil && span(d) == "" {
			t.Errorf("%v is shown as nothing", d)
		}
		if whole, err := parseSeconds(d.String()); err != nil || whole != d {
			t.Errorf("%q is %v, which is read as %v, %v", s, d, whole, err)
		}
	})
}

// What the command is told of a URL names the same store, and has no password.
//
//verify:fault Security | passwords appear in no error, no report and no child process
func TestPasswordsAloneAreCutOutOfTheURL(t *testing.T) {
	for _, c := range []struct{ whole, left string }{
		{"", ""},
		{"redis://h:1/2", "redis://h:1/2"},
		{"redis://app@h:1/2", "redis://app@h:1/2"},
		{"sqlite:///srv/a@b.db", "sqlite:///srv/a@b.db"},
		{"redis://:s3cr3t@h:1/2", "redis://h:1/2"},
		{"redis://app:s3cr3t@h:1/2", "redis://app@h:1/2"},
		{"redis://app:s3@cr:3t@h", "redis://app@h"},
		{"redis://a%2Fb:s3cr3t@h", "redis://a%2Fb@h"},
		{"etcd://app:s3cr3t@h1:1,h2:2/a%40b", "etcd://app@h1:1,h2:2/a%40b"},
		{"redis://app:s3cr3t@[::1]:6379/0", "redis://app@[::1]:6379/0"},
		{"redlock://app:s3cr3t@a,b,c/1", "redlock://app@a,b,c/1"},
		{"redlock:redis://:s3cr3t@a,redis://b,rediss://app:s3cr3t@c/1", "redlock:redis://a,redis://b,rediss://app@c/1"},
		// Nobody can tell where the password is in these.
		{"redlock:redis://:s3,cr3t@a,redis://b", ""},
		{"redlock:redis:s3cr3t@a,redis://b", ""},
		{"redis://:s3#cr3t@h", ""},
		{"redis://:12/s3cr3t@h", ""},
		{"s3cr3t@h", ""},
	} {
		if left := storeurl.WithoutPasswords(c.whole); left != c.left {
			t.Errorf("of %q is left %q, want %q", c.whole, left, c.left)
		}
		t.Setenv(envURL, c.whole)
		t.Setenv(envWithheld, "")
		env, err := childEnv("n", "1", "me", "")
		must(t, err)
		if regexp.MustCompile(`s3[c@,#]|cr:?3t`).MatchString(strings.Join(env, "\n")) {
			t.Errorf("of %q the command sees a part of the password", c.whole)
		}
		marked := slices.ContainsFunc(env, func(kv string) bool {
			return strings.HasPrefix(kv, envWithheld+"=") && kv != envWithheld+"="
		})
		if marked != (c.left != c.whole) {
			t.Errorf("of %q is left %q, and that something is missing is told: %t", c.whole, c.left, marked)
		}
	}
}
