package slot_test

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/slot"
)

// zones have jumps of every kind: by an hour, half an hour and two hours, at midnight, just
// after midnight, over a whole day, and none.
var zones = []string{
	"UTC", "Asia/Shanghai", "Asia/Kathmandu", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
	"America/St_Johns", "America/Sao_Paulo", "America/Havana", "America/Asuncion", "Africa/Cairo", "Asia/Beirut",
	"Asia/Tehran", "Asia/Gaza", "Asia/Pyongyang", "America/Caracas", "Pacific/Apia", "Pacific/Fakaofo",
	"Antarctica/Troll", "Africa/Casablanca", "Antarctica/Casey", "America/Godthab",
}

var lengths = []time.Duration{
	5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour,
}

// every is how many jumps there are for each that is tested. It is odd: those of spring and
// of autumn alternate. With -tags verify it is 1.
var every = 5

// jumps lists the moments between 2000 and 2040 at which the clocks of a zone jump.
func jumps(zone *time.Location) (all []time.Time) {
	n := 0
	for t := time.Date(2000, 1, 1, 12, 0, 0, 0, zone); t.Year() <= 2040; {
		_, end := t.ZoneBounds()
		switch {
		case end.IsZero():
			return all
		case !end.After(t):
			t = t.Add(time.Hour)
		default:
			t = end.In(zone)
			if n++; n%every == 0 || n == 1 {
				all = append(all, t)
			}
		}
	}
	return all
}

func load(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	steps.Must(t, err)
	return zone
}

// ticks lists when cron starts a line "every d" on a date: whenever the clock shows a
// multiple of d since midnight, and once only if it shows that again because it went back
// by less than d.
func ticks(y int, m time.Month, day int, d time.Duration, zone *time.Location) (all []time.Time) {
	noon := time.Date(y, m, day, 12, 0, 0, 0, zone)
	shown := map[string]time.Time{}
	for t := noon.Add(-15 * time.Hour); t.Before(noon.Add(15 * time.Hour)); t = t.Add(min(d, 15*time.Minute)) {
		into := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
		if ty, tm, td := t.Date(); ty != y || tm != m || td != day || into%d != 0 {
			continue
		}
		text := t.Format("15:04")
		if first, again := shown[text]; again && t.Sub(first) < d {
			continue
		}
		shown[text] = t
		all = append(all, t)
	}
	return all
}

// For each zone, date and length: the times of the cron line are in pairwise different
// slots, one each, and whatever is started until the next of them is in the same slot.
func TestEachTimeOfACronLineHasASlotOfItsOwn(t *testing.T) {
	for _, name := range zones {
		zone := load(t, name)
		dates := []time.Time{time.Date(2026, 2, 28, 12, 0, 0, 0, zone), time.Date(2032, 2, 29, 12, 0, 0, 0, zone)}
		for _, jump := range jumps(zone) {
			for days := -1; days <= 1; days++ {
				dates = append(dates, time.Date(jump.Year(), jump.Month(), jump.Day()+days, 12, 0, 0, 0, zone))
			}
		}
		for _, date := range dates {
			for _, d := range lengths {
				seen := map[int64]time.Time{}
				for _, at := range ticks(date.Year(), date.Month(), date.Day(), d, zone) {
					got := slot.Start(at, d)
					if !got.Equal(at) {
						t.Fatalf("%s, %v: the slot of %v begins at %v", name, d, at, got)
					}
					if other, taken := seen[got.Unix()]; taken {
						t.Fatalf("%s, %v: %v and %v have one slot", name, d, other, at)
					}
					seen[got.Unix()] = at
				}
			}
		}
	}
}

// What starts between two times of the cron line takes the slot of the first, and a later
// start never has an earlier slot.
func TestSlotsRiseAndNoneIsBetweenTwoTimes(t *testing.T) {
	for _, name := range zones {
		zone := load(t, name)
		for _, jump := range jumps(zone) {
			for _, d := range lengths {
				last := slot.Start(jump.Add(-26*time.Hour), d)
				for at := jump.Add(-26 * time.Hour); at.Before(jump.Add(26 * time.Hour)); at = at.Add(15 * time.Minute) {
					got := slot.Start(at, d)
					into := time.Duration(got.Hour())*time.Hour + time.Duration(got.Minute())*time.Minute
					switch {
					case got.Before(last) || got.After(at):
						t.Fatalf("%s, %v: %v is in slot %v, after slot %v", name, d, at, got, last)
					case into%d != 0 && !got.Equal(jump):
						t.Fatalf("%s, %v: slot %v of %v begins at no time of the line", name, d, got, at)
					case !slot.Start(got, d).Equal(got):
						t.Fatalf("%s, %v: the begin of slot %v is in slot %v", name, d, got, slot.Start(got, d))
					}
					last = got
				}
			}
		}
	}
}

func TestDayHasOneSlotOfADay(t *testing.T) {
	for _, name := range zones {
		zone := load(t, name)
		for _, jump := range jumps(zone) {
			begins := map[string]bool{}
			for at := jump.Add(-50 * time.Hour); at.Before(jump.Add(50 * time.Hour)); at = at.Add(15 * time.Minute) {
				begins[slot.Start(at, 24*time.Hour).Format(time.RFC3339)] = true
			}
			dates := map[string]bool{}
			for at := slot.Start(jump.Add(-50*time.Hour), 24*time.Hour); at.Before(jump.Add(50 * time.Hour)); at = at.Add(15 * time.Minute) {
				dates[at.Format(time.DateOnly)] = true
			}
			if len(begins) != len(dates) {
				t.Fatalf("%s around %v: %d dates, slots %v", name, jump, len(dates), begins)
			}
		}
	}
}

func TestClockThatJumps(t *testing.T) {
	for _, c := range []struct {
		zone, at string
		d        time.Duration
		want     string // in the zone
	}{
		// Spring: three comes after two.
		{"Europe/Berlin", "2026-03-29T04:00:00Z", 6 * time.Hour, "2026-03-29T06:00:00+02:00"},
		{"Europe/Berlin", "2026-03-29T03:59:59Z", 6 * time.Hour, "2026-03-29T00:00:00+01:00"},
		{"Europe/Berlin", "2026-03-29T01:00:00Z", 2 * time.Hour, "2026-03-29T03:00:00+02:00"},
		// Autumn: the hour from two to three comes twice.
		{"Europe/Berlin", "2026-10-25T22:59:59Z", 24 * time.Hour, "2026-10-25T00:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25T05:00:00Z", 6 * time.Hour, "2026-10-25T06:00:00+01:00"},
		{"Europe/Berlin", "2026-10-25T01:10:00Z", 2 * time.Hour, "2026-10-25T02:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25T01:10:00Z", time.Hour, "2026-10-25T02:00:00+01:00"},
		// By half an hour, from two to half past one.
		{"Australia/Lord_Howe", "2026-04-04T15:15:00Z", time.Hour, "2026-04-05T01:00:00+11:00"},
		{"Australia/Lord_Howe", "2026-04-04T15:15:00Z", 30 * time.Minute, "2026-04-05T01:30:00+10:30"},
		// A day without midnight begins at one.
		{"America/Sao_Paulo", "2018-11-04T15:00:00Z", 24 * time.Hour, "2018-11-04T01:00:00-02:00"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		steps.Must(t, err)
		got := slot.Start(at.In(load(t, c.zone)), c.d).Format(time.RFC3339)
		steps.Same(t, fmt.Sprint(c.zone, ", ", c.at, ", ", c.d), got, c.want)
	}
}

func TestStartThatIsEarlyTakesTheSlotThatComes(t *testing.T) {
	for _, c := range []struct {
		at   string
		d    time.Duration
		want string
	}{
		{"2026-11-20T09:59:58Z", time.Hour, "2026-11-20T10:00:00Z"},
		{"2026-11-20T10:00:02Z", time.Hour, "2026-11-20T10:00:00Z"},
		{"2026-11-20T10:45:00Z", time.Hour, "2026-11-20T10:00:00Z"},
		{"2026-11-20T23:59:00Z", 24 * time.Hour, "2026-11-20T00:00:00Z"},
		{"2026-11-20T23:59:58Z", 24 * time.Hour, "2026-11-21T00:00:00Z"},
		{"2026-11-20T10:00:28Z", 10 * time.Second, "2026-11-20T10:00:30Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		steps.Must(t, err)
		steps.Same(t, fmt.Sprint(c.at, ", ", c.d), slot.Near(at, c.d).Format(time.RFC3339), c.want)
	}
}

func TestTickThatTheClockShowsAgainHasTheSlotOfTheFirst(t *testing.T) {
	for _, c := range []struct {
		zone, at string
		next     time.Duration // until the next tick; 0: there is none
		want     string
	}{
		{"Europe/Berlin", "2026-10-25T01:30:00Z", 24 * time.Hour, "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T01:30:00Z", 0, "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T01:30:00Z", time.Hour, "2026-10-25T01:30:00Z"},
		{"Europe/Berlin", "2026-10-25T00:30:00Z", 24 * time.Hour, "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T02:00:00Z", 24 * time.Hour, "2026-10-25T02:00:00Z"},
		{"Europe/Berlin", "2026-03-29T01:30:00Z", 24 * time.Hour, "2026-03-29T01:30:00Z"},
		{"UTC", "2026-10-25T01:30:00Z", 24 * time.Hour, "2026-10-25T01:30:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		steps.Must(t, err)
		next := time.Time{}
		if c.next > 0 {
			next = at.Add(c.next)
		}
		got := slot.Tick(at.In(load(t, c.zone)), next).UTC().Format(time.RFC3339)
		steps.Same(t, fmt.Sprint(c.zone, ", ", c.at, ", next after ", c.next), got, c.want)
	}
}
