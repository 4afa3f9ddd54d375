package escape

import (
	"strings"
	"testing"
)

var letters = NewTable('=', func(c byte) bool { return c >= 'a' && c <= 'z' || c == '=' })

func TestTable(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "nightly": "nightly", "A": "=41", "a/b": "a=2Fb", "=": "=3D", "=41": "=3D=34=31", "\x00z\xff": "=00z=FF",
	} {
		if got := letters.Escape(s); got != want {
			t.Errorf("%q: %q; want %q", s, got, want)
		}
		if back, ok := letters.Unescape(want); !ok || back != s {
			t.Errorf("%q: %q, %v; want %q", want, back, ok, s)
		}
	}
	for _, s := range []string{"A", "a b", "=", "=4", "a=4", "=4g", "=ff", "=61", "==41", "a=41B"} {
		if text, ok := letters.Unescape(s); ok {
			t.Errorf("%q was read as %q: Escape does not write that", s, text)
		}
	}
	if n := testing.AllocsPerRun(100, func() { letters.Escape("nightly") }); n != 0 {
		t.Errorf("a plain text costs %v allocations", n)
	}
}

// FuzzTable: what is written is plain and is read again, and what is read is what was written.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", "nightly", "a/b", "=41", "=61", "\x00\xff", "订单"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		escaped := letters.Escape(s)
		for i := range len(escaped) {
			if c := escaped[i]; !letters.plain[c] && c != '=' && !strings.ContainsRune(hexDigits, rune(c)) {
				t.Fatalf("%q has the byte %q", escaped, c)
			}
		}
		if back, ok := letters.Unescape(escaped); !ok || back != s {
			t.Fatalf("%q was written as %q and read as %q, %v", s, escaped, back, ok)
		}
		if !strings.HasPrefix(letters.Escape(s+other), escaped) {
			t.Fatalf("%q does not begin with %q", letters.Escape(s+other), escaped)
		}
		if strings.HasPrefix(letters.Escape(other), escaped) != strings.HasPrefix(other, s) {
			t.Fatalf("%q and %q are written as %q and %q: one begins with the other on one side only", s, other, escaped, letters.Escape(other))
		}
		if text, ok := letters.Unescape(s); ok && letters.Escape(text) != s {
			t.Fatalf("%q was read as %q, which is written as %q", s, text, letters.Escape(text))
		}
	})
}
