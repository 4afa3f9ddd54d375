package main

import "testing"

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
