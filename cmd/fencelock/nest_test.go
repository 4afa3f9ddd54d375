package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/storeurl"
)

// What the command is told of a URL names the same store, and has no password.
func TestPasswordsAloneAreCutOutOfTheURL(t *testing.T) {
	for _, c := range []struct{ whole, left string }{
		{"", ""},
		{"redis://h:1/2", "redis://h:1/2"},
		{"redis://app@h:1/2", "redis://app@h:1/2"},
		{"postgres://app@h/db", "postgres://app@h/db"},
		{"sqlite:///srv/a@b.db", "sqlite:///srv/a@b.db"},
		{"redis://:s3cr3t@h:1/2", "redis://h:1/2"},
		{"redis://app:s3cr3t@h:1/2", "redis://app@h:1/2"},
		{"redis://app:s3@cr:3t@h", "redis://app@h"},
		{"redis://a%2Fb:s3cr3t@h", "redis://a%2Fb@h"},
		{"etcd://app:s3cr3t@h1:1,h2:2/a%40b", "etcd://app@h1:1,h2:2/a%40b"},
		{"redis://app:s3cr3t@[::1]:6379/0", "redis://app@[::1]:6379/0"},
		{"redlock://app:s3cr3t@a,b,c/1", "redlock://app@a,b,c/1"},
		{"redlock:redis://:s3cr3t@a,redis://b,postgres://app:s3cr3t@c/db", "redlock:redis://a,redis://b,postgres://app@c/db"},
		// Nobody can tell where the password is in these.
		{"redlock:redis://:s3,cr3t@a,redis://b", ""},
		{"redlock:redis:s3cr3t@a,redis://b", ""},
		{"redis://:s3#cr3t@h", ""},
		{"redis://:12/s3cr3t@h", ""},
		{"redis:s3cr3t@h", ""},
		{"s3cr3t@h", ""},
	} {
		if left := storeurl.WithoutPasswords(c.whole); left != c.left {
			t.Errorf("of %q is left %q, want %q", c.whole, left, c.left)
		}
		t.Setenv(envURL, c.whole)
		t.Setenv(envWithheld, "")
		env, err := childEnv("n", "1", "me", "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(env, "\n"), "s3") {
			t.Errorf("of %q the command sees a part of the password", c.whole)
		}
		marked := slices.ContainsFunc(env, func(kv string) bool {
			return strings.HasPrefix(kv, envWithheld+"=") && kv != envWithheld+"="
		})
		if marked != (c.left != c.whole) {
			t.Errorf("of %q is left %q, and that something is missing is told: %t", c.whole, c.left, marked)
		}
	}
}
