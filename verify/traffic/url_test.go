package traffic

import (
	"strings"
	"testing"
)

func TestURLsThatSayTooLittle(t *testing.T) {
	t.Setenv(PasswordVariable, "")
	for raw, word := range map[string]string{
		"":                            "no store has the URL scheme",
		"ftp://h":                     "no store has the URL scheme",
		"redis://h?db=1":              "cannot be read",
		"redis://h#x":                 "cannot be read",
		"redis://:s3cret@h:x":         "cannot be read",
		"redis://":                    "has no host",
		"redis://a,b":                 "names several servers",
		"redis://h/s3cret":            "does not end with the number of a database",
		"redis+sentinel://a":          "has too little or too much",
		"redis+cluster://a/1":         "has too little or too much",
		"redlock://a,b":               "does not name 3, 5, 7 or 9 servers",
		"redlock:redis://a,redis://b": "does not name 3, 5, 7 or 9 servers",
		"redlock:redis://a,redis://b,mysql://u@c/d": "member 3 of the redlock URL cannot be one",
		"redlock:redis://a,redis://,redis://c":      "member 2 of the redlock URL",
		"postgres://h":                              "has too little or too much",
		"sqlite://locks.db":                         "has no absolute path",
		"memory:x":                                  "says more than that",
	} {
		_, err := ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v; want %q, and nothing secret", raw, err, word)
		}
	}
}

func TestPasswordComesFromTheEnvironment(t *testing.T) {
	t.Setenv(PasswordVariable, "s3/cret")
	for raw, whole := range map[string]string{
		"redis://h":              "redis://:s3%2Fcret@h:6379",
		"postgres://me:old@h/db": "postgres://me:s3%2Fcret@h:5432/db",
		"redlock:redis://a,redis://:own@b,redis://c": "",
	} {
		u, err := ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if whole != "" {
			if u.String() != whole {
				t.Errorf("%s is read as %s; want %s", raw, u, whole)
			}
			continue
		}
		// What was not said for one member is what was said for all.
		for i, want := range []string{"s3/cret", "own", "s3/cret"} {
			if got, _ := Members(u)[i].User.Password(); got != want {
				t.Errorf("member %d has the password %q; want %q", i+1, got, want)
			}
		}
	}
}
