package console

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/internal/terminal"
)

// say returns a text of the pages in a language.
func say(l language, id string, args ...any) string {
	t, ok := texts[id]
	if !ok {
		panic("console: there is no text " + id)
	}
	if len(args) == 0 {
		return t[l]
	}
	return fmt.Sprintf(t[l], args...)
}

// count is say for a number of things: the text id.1 is for one.
func count(l language, id string, n int) string {
	if n == 1 {
		return say(l, id+".1", n)
	}
	return say(l, id+".n", n)
}

// shown is text of somebody else as a page shows it: what would be hidden is escaped.
func shown(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) }) ||
		len(terminal.EscapeHidden([]byte(s))) != len(s) {
		return terminal.Plain(s)
	}
	return s
}

// span shows a duration: <1s, 12s, 3m05s, 2h07m, 4d03h. Looks once a second tell no more.
func span(l language, d time.Duration) string {
	if d < time.Second {
		return say(l, "unit.less")
	}
	return seconds(l, d)
}

// seconds shows a duration changes each second. The script has it, too.
func seconds(l language, d time.Duration) string {
	units := strings.Split(texts["units"][l], "|")
	s := int(max(d, 0).Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%d%s", s, units[0])
	case s < 60*60:
		return fmt.Sprintf("%d%s%02d%s", s/60, units[1], s%60, strings.TrimRight(units[0], " "))
	case s < 24*60*60:
		return fmt.Sprintf("%d%s%02d%s", s/3600, units[2], s/60%60, strings.TrimRight(units[1], " "))
	}
	return fmt.Sprintf("%d%s%02d%s", s/86400, units[3], s/3600%24, strings.TrimRight(units[2], " "))
}

// clock shows the time of day in UTC, with the date if it is not today's.
func clock(t time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// slotOf says which slot a claim of once is for. It is empty for other claims.
func slotOf(l language, slot *time.Time) string {
	switch {
	case slot == nil:
		return ""
	case slot.IsZero():
		return say(l, "key.ever")
	}
	return say(l, "slot", clock(*slot))
}

// moment is a time for programs.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// endless is so long that nobody meant an end.
const endless = 365 * 24 * time.Hour

// lease is what is left of one.
type lease struct {
	Rest    time.Duration
	Endless bool   // nobody meant an end
	MS      int64  // the rest
	FullMS  int64  // the whole length
	Percent int    // width of the bar
	Level   string // class of its colour
}

func leaseOf(rest, full time.Duration) lease {
	ms, fullMS := max(rest, 0).Milliseconds(), max(full, rest, time.Millisecond).Milliseconds()
	percent := int(100 * ms / fullMS)
	return lease{rest, rest > endless, ms, fullMS, percent, levelOf(percent)}
}

// levelOf returns the colour of what is left of a lease. A holder renews after a third of it, so
// less than a third left means that renewals failed. console.js has the same limits.
func levelOf(percent int) string {
	switch {
	case percent < 10:
		return "ends"
	case percent < 33:
		return "late"
	}
	return "good"
}
