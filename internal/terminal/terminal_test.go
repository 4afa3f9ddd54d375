package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestTableLinesUpChineseNames(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, [][]string{{"NAME", "OWNER", "NOTE"}, {"夜间报表", "甲@web", ""}, {"e\u0301tat", "乙", "ﾃｽﾄ"}, {"nightly-report", "x", "y"}}, nil); err != nil {
		t.Fatal(err)
	}
	want := `
NAME            OWNER   NOTE
夜间报表        甲@web
e` + "\u0301" + `tat            乙      ﾃｽﾄ
nightly-report  x       y
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
	steps.Same(t, "harmless text is shown as", Plain("夜间 report/42"), "夜间 report/42")
}

// What is escaped in JSON means the same as before.
func TestHiddenCharactersOfJSONAreEscaped(t *testing.T) {
	for _, hidden := range []string{"\u202e", "\u2066", "\u200b", "\u00ad", "\ufeff", "\u3164", "\ufe0f", "\u0085", "\x7f", "\U000e0041"} {
		text, err := json.Marshal("a" + hidden + "夜")
		steps.Must(t, err)
		var back string
		escaped := EscapeHidden(text)
		if err := json.Unmarshal(escaped, &back); err != nil || back != "a"+hidden+"夜" || bytes.Contains(escaped, []byte(hidden)) {
			t.Errorf("%q is written as %s, which is read as %q, %v", hidden, escaped, back, err)
		}
	}
}

// FuzzTable: what others chose is one line each, whatever it holds, and no control
// characters reach the screen.
//
//verify:fault Security | owner and note are shown with control characters escaped
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", "orders/42", "\x1b[2J", "锁\tlock\n", "\xff", "e\u0301", "a\u202eb", "a\rb", "a\u2028b"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var w strings.Builder
		steps.Must(t, Table(&w, [][]string{{"KEY", "OWNER"}, {Plain(a), Plain(b)}}, nil))
		if n := strings.Count(w.String(), "\n"); n != 2 {
			t.Errorf("%q and %q are shown in %d lines", a, b, n)
		}
		for _, r := range w.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q and %q are shown as %q", a, b, w.String())
			}
		}
		if s := OneLine(a); strings.ContainsAny(s, "\n\r\x1b\x00\x7f") {
			t.Errorf("%q is said as %q", a, s)
		}
	})
}
