// Package escape writes keys in the few bytes that a store takes as they are.
package escape

import "strconv"

const hexDigits = "0123456789ABCDEF"

// Table says which bytes stand for themselves. Every other byte is written as a mark and two
// digits, byte by byte, so that what begins with s is written with what s is written with.
type Table struct {
	mark  byte
	plain [256]bool
}

// NewTable has the bytes stand for themselves of which plain says so. The mark never does.
func NewTable(mark byte, plain func(c byte) bool) *Table {
	t := &Table{mark: mark}
	for i := range t.plain {
		t.plain[i] = byte(i) != mark && plain(byte(i))
	}
	return t
}

// Escape allocates nothing for an s that is plain.
func (t *Table) Escape(s string) string {
	special := 0
	for i := range len(s) {
		if !t.plain[s[i]] {
			special++
		}
	}
	if special == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*special)
	for i := range len(s) {
		if c := s[i]; t.plain[c] {
			b = append(b, c)
		} else {
			b = append(b, t.mark, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// Unescape is the inverse of Escape, and false for what Escape does not write: each text is
// written in one way.
func (t *Table) Unescape(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == t.mark && i+2 < len(s) {
			code, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			c = byte(code)
			i += 2
		}
		b = append(b, c)
	}
	text := string(b)
	return text, t.Escape(text) == s
}
