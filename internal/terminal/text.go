package terminal

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Quote shows text that somebody chose, in quotes: control characters, broken
// UTF-8 and hidden characters are escaped.
func Quote(s string) string { return string(EscapeHidden([]byte(strconv.Quote(s)))) }

// Plain is Quote without the quotes, for tables.
func Plain(s string) string {
	q := Quote(s)
	return q[1 : len(q)-1]
}

// OneLine keeps what a store or a system call said from breaking out of its line, and from
// changing how the rest of the line is shown.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return string(EscapeHidden([]byte(s)))
}

// EscapeHidden writes hidden characters as the \u escapes of JSON. A character is hidden if
// a terminal shows nothing for it, or shows other characters in another order because of
// it: two names that differ in it look the same.
func EscapeHidden(text []byte) []byte {
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

func hidden(r rune) bool {
	return r >= 0x7f && !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Zl, unicode.Zp)
}
