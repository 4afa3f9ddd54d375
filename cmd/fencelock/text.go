package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/terminal"
)

// quote shows text that somebody chose, in quotes.
func quote(s string) string { return terminal.Quote(s) }

// plain is quote without the quotes, for tables.
func plain(s string) string { return terminal.Plain(s) }

// cut returns the beginning of s that fits into so many columns, with … for the rest.
func cut(s string, columns int) string {
	if terminal.Columns(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		if n += terminal.Columns(string(r)); n >= columns {
			return s[:i] + "…"
		}
	}
	return s
}

// heldBy says who is in the way: "held by app@web-3/812 (deploy) since 14:02:11, 2 ahead
// with the holder".
func heldBy(h *fencelock.HeldError) string {
	if h == nil {
		return "held by somebody else"
	}
	var b strings.Builder
	b.WriteString("held by ")
	if h.Owner == "" {
		b.WriteString("somebody else")
	} else {
		b.WriteString(plain(h.Owner))
	}
	if h.Note != "" {
		b.WriteString(" (" + noteText(h.Note) + ")")
	}
	if !h.Since.IsZero() {
		b.WriteString(" since " + clockTime(h.Since))
	}
	if h.Ahead > 1 {
		fmt.Fprintf(&b, ", %d ahead with the holder", h.Ahead)
	}
	return b.String()
}

// waitsFor says who is in the way of one who waits in line.
func waitsFor(h *fencelock.HeldError) string {
	if h != nil && h.Ahead == 1 {
		return heldBy(h) + "; you are next"
	}
	return heldBy(h)
}

// clockTime is the time of day, with the date if it is not today's.
func clockTime(t time.Time) string {
	t = t.Local()
	y, m, d := time.Now().Date()
	if ty, tm, td := t.Date(); ty == y && tm == m && td == d {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// span shows a duration as people say it: 350ms, 12s, 3m05s, 2h07m, 4d03h.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// lossText is why a lock was lost, without the name, which is said already.
func lossText(err error) string {
	if err == nil {
		return "the reason is unknown"
	}
	text := err.Error()
	if _, why, ok := strings.Cut(text, " was lost: "); ok {
		return why
	}
	return text
}
