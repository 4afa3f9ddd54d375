package main

import (
	"strings"
	"testing"
	"unicode"
)

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

// FuzzTable: what others chose is one line each, whatever it holds, and no control
// characters reach the terminal.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", "orders/42", "\x1b[2J", "锁\tlock\n", "\xff", "e\u0301", "\u202e"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var w strings.Builder
		if err := table(&w, [][]string{{"KEY", "OWNER"}, {plain(a), plain(b)}}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(w.String(), "\n"); n != 2 {
			t.Errorf("%q and %q are shown in %d lines", a, b, n)
		}
		for _, r := range w.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q and %q are shown as %q", a, b, w.String())
			}
		}
		if s := oneLine(a); strings.ContainsAny(s, "\n\r\x1b\x00\x7f") {
			t.Errorf("%q is said as %q", a, s)
		}
	})
}
