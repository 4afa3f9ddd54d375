package storeurl

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"
)

// shown is everything of a URL that people may get to see.
func shown(u *URL, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.ToLower(fmt.Sprintf("%s %v %#v %s", u, u, u, u.denied()))
}

// FuzzURL: Parse shows nothing of the password, however badly it is written into the URL.
//
//verify:fault Security | passwords appear in no error, no report and no child process
func FuzzURL(f *testing.F) {
	for _, scheme := range Schemes() {
		f.Add(scheme+"://", "user", "pass", "", "@host:1234/db")
		f.Add(scheme+":", "", "", "", "")
		// What was not percent-encoded: a slash makes a path of what follows, and so on.
		for _, c := range []string{"/", "?", "#", "@", ":", "%", "[", " ", ",", "/x/"} {
			f.Add(scheme+"://", "user", "12", c, "@host:1234")
			f.Add(scheme+"://", "user", "12", c, "@host:1234/name")
			f.Add(scheme+"://", "user", "12", c, "@h1:1,h2:2,h3:3/name/1")
			f.Add(scheme+":", "user", "12", c, "@host:1234/0")
		}
	}
	f.Add("redlock://", "", "", "", "a,b,c/0")
	f.Add("", "user", "pass", "", "@host")
	f.Add("http://[", "", "", "", "::1]:99999999/\x7f")
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	const second = "s3cond-h4lf"
	f.Fuzz(func(t *testing.T, scheme, user, first, between, rest string) {
		// The first half may look like a port; the second is to be seen nowhere.
		raw := scheme + user + ":" + first + between + second + rest
		if strings.Contains(strings.ToLower(scheme+user+rest), second) || !strings.Contains(rest, "@") {
			return
		}
		if name, _, ok := strings.Cut(scheme, ":"); !ok || strings.Trim(strings.TrimPrefix(scheme, name), ":/") != "" {
			return // the password would be what comes before the first colon, or behind it
		}
		if u, err := url.Parse(raw); err == nil && u.Scheme == "sqlite" && u.Host == "" && u.User == nil {
			return // all of it is the name of a file, which has no password and is shown
		}
		for _, from := range []Source{{Name: EnvURL}, {Name: "--url", Visible: true}} {
			u, err := Parse(raw, from)
			if text := shown(u, err); strings.Contains(strings.ToLower(text), second) {
				t.Errorf("%q: part of the password is shown: %s", raw, text)
			}
			if left := WithoutPasswords(raw); err == nil && strings.Contains(strings.ToLower(left), second) {
				t.Errorf("%q: part of the password is handed on: %s", raw, left)
			}
		}
	})
}

// FuzzURLAlone: any text at all.
func FuzzURLAlone(f *testing.F) {
	for _, s := range []string{"", ":", "//", "redis:", "etcd://,", "zk://[", "sqlite:///", "local:x", "memory:", "redlock://a,a,a", "\x00", "%", "redis://[::1]:6379/0"} {
		f.Add(s)
	}
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw, Source{Name: EnvURL})
		if (u == nil) == (err == nil) {
			t.Errorf("%q: a store %v, and an error %v", raw, u, err)
		}
		if err == nil && u.Remote() && u.Host == "" {
			t.Errorf("%q: a server without an address: %v", raw, u)
		}
		if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q: the message breaks out of its line: %q", raw, err)
		}
	})
}
