package storeurl

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
)

func TestBridgeURLNamesTwoStores(t *testing.T) {
	from := Source{Name: "a test", Password: "of both"}
	for raw, want := range map[string]string{
		"bridge:redis://old:1/2,redis://new:3": "bridge from redis old:1/2 to redis new:3",
		"bridge:redlock://a,b,c,memory:":       "bridge from redlock a:6379,b:6379,c:6379 to memory",
		"bridge:redlock:redis://a,redis://b,redis://c,redis://u:own@new": "bridge from redlock of redis a:6379, redis b:6379, " +
			"redis c:6379 to redis new:6379",
		"bridge:postgres://u@a,b/db,etcd://c,d/p": "bridge from ",
	} {
		u, err := Parse(raw, from)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if !strings.HasPrefix(u.String(), want) {
			t.Errorf("%s is %q; want %q", raw, u, want)
		}
	}
	for _, raw := range []string{"bridge:", "bridge:memory:", "bridge:memory:,what:", "bridge:memory:,memory:,memory:"} {
		if u, err := Parse(raw, from); err == nil {
			t.Errorf("%s is %v; want an error", raw, u)
		}
	}
	secret := "bridge:redis://u:secret@old,postgres://u:secret@new/db"
	if got := WithoutPasswords(secret); got != "bridge:redis://u@old,postgres://u@new/db" {
		t.Errorf("without passwords: %q", got)
	}
	if _, err := Parse(secret+"#", from); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v; want an error without the password", err)
	}
}

func TestBridgeURLOpens(t *testing.T) {
	s, err := Open(t.Context(), "bridge:memory:,memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	c, err := fencelock.New(s.Backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
