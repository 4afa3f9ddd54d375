package storeurl

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestBridgeURLNamesTwoStores(t *testing.T) {
	from := Source{Name: "a test", Password: "of both"}
	for raw, want := range map[string]string{
		"bridge:redis://old:1/2,redis://new:3":                     "bridge from redis old:1/2 to redis new:3",
		"bridge:redis://a?format=setnx,redis://a":                  "bridge from redis a:6379 as setnx to redis a:6379",
		"bridge:etcd://a,s3:1,s3://b/locks":                        "bridge from etcd a:2379,s3:1 to s3 b/locks",
		"bridge:nats://:x@a,nats://u:x@a":                          "bridge from nats a:4222 to nats a:4222", // of two accounts
		"bridge:s3://b?endpoint=http://x,s3://b?endpoint=http://y": "bridge from s3 b to s3 b",
		"bridge:redlock://a,b,c,memory:":                           "bridge from redlock a:6379,b:6379,c:6379 to memory",
		"bridge:redlock:redis://a,redis://b,redis://c,redis://u:own@new": "bridge from redlock of redis a:6379, redis b:6379, " +
			"redis c:6379 to redis new:6379",
		"bridge:postgres://u@a,b/db,etcd://c,d/p":                 "bridge from ",
		"bridge:redis://old:1/2?format=redisson,zk://new:3/locks": "bridge from redis old:1/2 as redisson to zk new:3/locks",
		"bridge:postgres://u@a/db?sslmode=disable&format=symfony,redis://new:3": "bridge from postgres a:5432/db as symfony " +
			"to redis new:3",
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
	for _, raw := range []string{"bridge:", "bridge:memory:", "bridge:memory:,what:", "bridge:memory:,memory:,memory:",
		"bridge:redis://a,redis://b?format=setnx",
		"bridge:redis://a?format=what,redis://b", "bridge:etcd://a?format=setnx,redis://b",
		"bridge:redis://a,zk://b", "bridge:redis://a,zks://b", "bridge:memory:,redlock://a,b,c", "redis://a?format=setnx",
		"bridge:redis://a/1,redis://a:6379/1", "bridge:sqlite:///x,sqlite:///x", "bridge:postgres://u@h/db,postgres://u@h/db",
	} {
		if u, err := Parse(raw, from); err == nil {
			t.Errorf("%s is %v; want an error", raw, u)
		}
	}
	_, err := Parse("bridge:redis://a?format=setnx&format=redisson,redis://b", from)
	if err == nil || !strings.Contains(err.Error(), "more than once") {
		t.Errorf("two formats: %v; want an error that says so", err)
	}
	if got := WithoutPasswords("bridge:redis://:secret@old?format=setnx,redis://new"); got != "bridge:redis://old?format=setnx,redis://new" {
		t.Errorf("without passwords: %q", got)
	}
	secret := "bridge:redis://u:secret@old,postgres://u:secret@new/db"
	steps.Same(t, "without passwords", WithoutPasswords(secret), "bridge:redis://u@old,postgres://u@new/db")
	if _, err := Parse(secret+"#", from); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v; want an error without the password", err)
	}
}

func TestBothStoresOfABridgeMayHaveOnePassword(t *testing.T) {
	for raw, want := range map[string][]string{
		"bridge:redis://a,redis://:own@b":          {"both", "own"},
		"bridge:redlock://a,b,c,postgres://u@d/e":  {"both", "both"},
		"bridge:zk://u@a,etcd://b":                 {"both", ""}, // a user belongs to a password of these
		"bridge:redis://a?format=setnx,zk://b":     {"both", ""},
		"bridge:zk://b/locks,postgres://u:own@d/e": {"", "own"},
	} {
		u, err := Parse(raw, Source{Name: "a test", Password: "both"})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		for i, m := range u.Members {
			for _, m := range append(m.Members, m) {
				if m.password != want[i] {
					t.Errorf("%s: %s has the password %q; want %q", raw, m, m.password, want[i])
				}
			}
		}
	}
}

// What the members of a quorum have agreed on is in its URL, once for all members.
func TestMembershipInAURL(t *testing.T) {
	for raw, want := range map[string]ballot.Membership{
		"redlock://a,b,c":                                                 {},
		"redlock://a,b,c/1?durable=true&db=1":                             {Durable: true},
		"redlock://a,b,c?quarantine=10m&skew=30s":                         {MaxTTL: 10 * time.Minute, Skew: 30 * time.Second},
		"redlock:redis://a,redis://b?durable=true,redis://c?durable=true": {Durable: true},
	} {
		u, err := Parse(raw, Source{})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got, err := u.membership(ballot.Membership{}); err != nil || got != want {
			t.Errorf("%s says %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for raw, word := range map[string]string{
		"redlock://a,b,c?durable=perhaps":                                  "want true or false",
		"redlock://a,b,c?skew=-1s":                                         "want a time such as 30s",
		"redlock://a,b,c?quarantine=1m":                                    "more than twice its Skew",
		"redlock://a,b,c?quarantin=5m":                                     "unknown parameter quarantin",
		"redlock:redis://a?durable=true,redis://b,redis://c?durable=false": "two values for durable",
	} {
		if _, err := Parse(raw, Source{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s is answered with %v; want an error with %q", raw, err, word)
		}
	}
}
