package traffic

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestURLsOfEachSchemeAreRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of files are written otherwise there")
	}
	t.Setenv(PasswordVariable, "")
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	seen := map[string]bool{}
	for _, c := range []struct{ raw, whole string }{
		{"local:", "local://" + filepath.Join(state, "fencelock", "locks.db")},
		{"memory:", "memory:"},
		{"sqlite:///var/lib/locks.db", "sqlite:///var/lib/locks.db"},
		{"redis://:pw@h/3", "redis://:pw@h:6379/3"},
		{"rediss://u:pw@[::1]", "rediss://u:pw@[::1]:6379"},
		{"redis+sentinel://a,b,c:1/locks/2", "redis+sentinel://a:26379,b:26379,c:1/locks/2"},
		{"redis+cluster://a,b:1", "redis+cluster://a:6379,b:1"},
		{"redlock://a,b,c/1", "redlock://a:6379,b:6379,c:6379/1"},
		{"redlock:redis://a,rediss://u:pw@b/1,postgres://me@c/db", "redlock:redis://a:6379,rediss://u:pw@b:6379/1,postgres://me@c:5432/db"},
		{"postgres://me@h/db", "postgres://me@h:5432/db"},
		{"postgres://me@h/db?sslmode=disable", "postgres://me@h:5432/db?sslmode=disable"},
		{"redlock:redis://a,postgres://me@b/db?sslmode=disable,postgres://me@c/db?sslmode=disable", "redlock:redis://a:6379,postgres://me@b:5432/db?sslmode=disable,postgres://me@c:5432/db?sslmode=disable"},
		{"postgresql://me@h:1/db", "postgresql://me@h:1/db"},
		{"mysql://me@h/db", "mysql://me@h:3306/db"},
		{"mariadb://me@h/db", "mariadb://me@h:3306/db"},
		{"etcd://a,b:1/app", "etcd://a:2379,b:1/app"},
		{"etcds://u:pw@a", "etcds://u:pw@a:2379"},
		{"zk://a,b/root/below", "zk://a:2181,b:2181/root/below"},
	} {
		u, err := ParseURL(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if u.String() != c.whole {
			t.Errorf("%s is read as %s; want %s", c.raw, u, c.whole)
		}
		if _, ok := Schemes()[u.Scheme]; !ok {
			t.Errorf("nobody locks at %s", c.raw)
		}
		seen[u.Scheme] = true
	}
	for _, scheme := range URLs() {
		if !seen[scheme] {
			t.Errorf("no URL of %s was read", scheme)
		}
	}
}

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
