package main

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"unicode"
)

// FuzzURL: whatever stands in FENCELOCK_URL, the command says what is wrong or knows a
// place, and shows nothing of the password, however badly that is written into the URL.
func FuzzURL(f *testing.F) {
	for _, s := range schemes() {
		f.Add(s.name+"://", "user", "pass", "", "@host:1234/db")
		f.Add(s.name+":", "", "", "", "")
		// What was not percent-encoded: a slash makes a path of what follows, and so on.
		for _, c := range []string{"/", "?", "#", "@", ":", "%", "[", " ", ",", "/x/"} {
			f.Add(s.name+"://", "user", "12", c, "@host:1234")
			f.Add(s.name+"://", "user", "12", c, "@host:1234/name")
			f.Add(s.name+"://", "user", "12", c, "@h1:1,h2:2,h3:3/name/1")
			f.Add(s.name+":", "user", "12", c, "@host:1234/0")
		}
	}
	f.Add("redlock://", "", "", "", "a,b,c/0")
	f.Add("", "user", "pass", "", "@host")
	f.Add("http://[", "", "", "", "::1]:99999999/\x7f")
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	f.Setenv(envPassword, "")
	f.Setenv(envURL, "")
	const second = "s3cond-h4lf"
	f.Fuzz(func(t *testing.T, scheme, user, first, between, rest string) {
		// The first half may look like a port; the second is to be seen nowhere.
		raw := scheme + user + ":" + first + between + second + rest
		if os.Setenv(envURL, raw) != nil || strings.Contains(strings.ToLower(scheme+user+rest), second) || !strings.Contains(rest, "@") {
			return
		}
		if name, _, ok := strings.Cut(scheme, ":"); !ok || strings.Trim(strings.TrimPrefix(scheme, name), ":/") != "" {
			return // the password would be what comes before the first colon, or behind it
		}
		if u, err := url.Parse(raw); err == nil && u.Scheme == "sqlite" && u.Host == "" && u.User == nil {
			return // all of it is the name of a file, which has no password and is shown
		}
		p, err := (&cli{}).findPlace()
		shown := ""
		if err != nil {
			shown = err.Error()
		} else {
			shown = p.String() + p.notice + p.silent("name", nil).Error()
		}
		if strings.Contains(strings.ToLower(shown), second) {
			t.Errorf("%q: part of the password is shown: %s", raw, shown)
		}
		if own := (*failure)(nil); err != nil && (!errors.As(err, &own) || own.code == 0) {
			t.Errorf("%q: the program would end as if nothing was wrong: %v", raw, err)
		}
	})
}

// FuzzURLAlone: any text at all.
func FuzzURLAlone(f *testing.F) {
	for _, s := range []string{"", ":", "//", "redis:", "etcd://,", "zk://[", "sqlite:///", "local:x", "memory:", "redlock://a,a,a", "\x00", "%", "redis://[::1]:6379/0"} {
		f.Add(s)
	}
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	f.Setenv(envPassword, "")
	f.Setenv(envURL, "")
	f.Fuzz(func(t *testing.T, raw string) {
		if os.Setenv(envURL, raw) != nil {
			return
		}
		p, err := (&cli{}).findPlace()
		if (p == nil) == (err == nil) {
			t.Errorf("%q: a place %v, and an error %v", raw, p, err)
		}
		if err == nil && p.scheme.server && p.url.Host == "" {
			t.Errorf("%q: a server without an address: %v", raw, p)
		}
	})
}

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
