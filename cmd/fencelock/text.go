package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/fencelock/fencelock"
)

// quote shows text that somebody chose, in quotes: control characters, broken
// UTF-8 and hidden characters are escaped.
func quote(s string) string { return string(escapeHidden([]byte(strconv.Quote(s)))) }

// plain is quote without the quotes, for tables.
func plain(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}

// hidden reports whether a terminal shows nothing for r, or shows other characters in
// another order because of it: two names that differ in it look the same.
func hidden(r rune) bool {
	return r >= 0x7f && !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Zl, unicode.Zp)
}

// escapeHidden writes hidden characters as the \u escapes of JSON.
func escapeHidden(text []byte) []byte {
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	var b []byte
	for _, r := range string(text) {
		switch {
		case !hidden(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

// heldBy says who is in the way: "held by app@web-3/812 (deploy) since 14:02:11, 2
// ahead".
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
		b.WriteString(" (" + plain(h.Note) + ")")
	}
	if !h.Since.IsZero() {
		b.WriteString(" since " + clockTime(h.Since))
	}
	if h.Ahead > 0 {
		fmt.Fprintf(&b, ", %d ahead", h.Ahead)
	}
	return b.String()
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

// columns is how many columns of a terminal s takes: two for a Chinese character,
// none for a combining mark.
func columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

func wide(r rune) bool {
	k := width.LookupRune(r).Kind()
	return k == width.EastAsianWide || k == width.EastAsianFullwidth
}

// table prints rows in columns that line up on a terminal, two spaces apart. The
// first row is the heading.
func table(w io.Writer, rows [][]string) error {
	var most []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(most) {
				most = append(most, 0)
			}
			most[i] = max(most[i], columns(cell))
		}
	}
	var all strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", most[i]-columns(cell)+2))
		}
		all.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, all.String())
	return err
}
