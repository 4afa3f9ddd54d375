package fencelock

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/internal/limit"
)

// FuzzMark: what Once writes on a line is read again; other text is not taken for a slot, or for one that can be compared.
func FuzzMark(f *testing.F) {
	f.Add("", int64(0), "app@host/1")
	f.Add("ever ever x", int64(1_800_000_000_000_000_000), "")
	f.Add("2026-11-21T00:00:00Z 2026-11-21T00:00:01.5Z a b c", int64(-1), "a b\x1f")
	f.Add("2026-11-21T00:00:00+25:00 x y", int64(1), strings.Repeat("o", limit.Owner))
	f.Fuzz(func(t *testing.T, text string, at int64, owner string) {
		if r, ok := readMark(string(text)); ok {
			if again, ok := readMark(writeMark(r)); !ok || !again.slot.Equal(r.slot) || again.owner != r.owner {
				t.Errorf("%q is read as %+v, written, and read as %+v, %v", text, r, again, ok)
			}
		}
		r := run{time.Unix(0, at), time.Unix(0, at).Add(time.Second), owner}
		m := writeMark(r)
		if len(owner) <= limit.Owner && len(m) > limit.Mark {
			t.Errorf("a mark of %d bytes: %q", len(m), m)
		}
		if got, ok := readMark(m); !ok || !got.slot.Equal(r.slot) || !got.done.Equal(r.done) || got.owner != owner {
			t.Errorf("%+v is written as %q, and read as %+v, %v", r, m, got, ok)
		}
	})
}

// FuzzPrintable: what somebody else chose is shown in one line, and none of it moves the
// cursor or the direction of the text.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "orders/42", "\x1b[2J\r\n", "锁 \u202e \u200f \ufeff", "\xff\xc0", strings.Repeat("x", 1000), "\u0000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := printable(s)
		for _, r := range shown {
			if r != '\ufffd' && !unicode.IsPrint(r) {
				t.Errorf("%q is shown as %q", s, shown)
			}
		}
		if len(shown) > 250 {
			t.Errorf("%q is shown in %d bytes", s, len(shown))
		}
	})
}
