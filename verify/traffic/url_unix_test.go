//go:build unix

package traffic

import (
	"path/filepath"
	"testing"
)

func TestURLsOfEachSchemeAreRead(t *testing.T) {
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
