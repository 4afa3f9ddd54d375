package redislock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/redis/go-redis/v9"
)

func examine(t *testing.T, b *Backend, ttl time.Duration) health.Result {
	t.Helper()
	e, err := b.Examine(t.Context(), ttl)
	must(t, err)
	return e
}

// found returns the finding with a code, or fails the test.
func found(t *testing.T, e health.Result, code string, severity health.Severity) health.Finding {
	t.Helper()
	i := slices.IndexFunc(e.Findings, func(f health.Finding) bool { return f.Code == code })
	if i < 0 {
		t.Errorf("there is no %s in %+v", code, e.Findings)
		return health.Finding{}
	}
	f := e.Findings[i]
	if f.Severity != severity || f.Setting == "" || f.Value == "" || f.Why == "" || f.Remedy == "" {
		t.Errorf("%s of severity %v: %+v", code, f.Severity, f)
	}
	return f
}

// With the rights that New asks for, and no more, what may not be read is a note, and nothing
// stays.
func TestExamineWithTheRightsOfNew(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	restrict(t, s)
	e := examine(t, closing(t, New(dialLocks(t, s), nil)), 30*time.Second)
	for _, f := range e.Findings {
		if f.Code != "redis-unreadable" || f.Severity != health.Note {
			t.Errorf("it finds %+v", f)
		}
	}
	if len(e.Findings) != 2 {
		t.Errorf("%d findings, want one for INFO and one for CONFIG", len(e.Findings))
	}
	if n := ask(t, s, "DBSIZE"); n != "0" {
		t.Errorf("%s keys stay", n)
	}
}

func TestExamineNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if !isSince(t, s, 6, 0) {
		t.Skip("users have no rights before Redis 6")
	}
	needed := append(strings.Fields(lockRights), "~"+DefaultPrefix+"*")
	for _, without := range needed {
		ask(t, s, append([]string{"ACL", "SETUSER", "one", "reset", "on", ">p", "allchannels", "+info", "+config"},
			slices.DeleteFunc(slices.Clone(needed), func(r string) bool { return r == without })...)...)
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "one", Password: "p", DisableIdentity: true})
		f := found(t, examine(t, New(rdb, nil), time.Minute), "redis-rights", health.Error)
		if want := "ACL SETUSER one " + without; f.Remedy != want {
			t.Errorf("without %s the remedy is %q", without, f.Remedy)
		}
		must(t, rdb.Close())
	}
}

// Each node of a Cluster is looked at: a setting of one is a finding of that one.
func TestExamineEachMasterOfACluster(t *testing.T) {
	t.Parallel()
	nodes := clusterOf(t, 3)
	ask(t, nodes[1], "CONFIG", "SET", "maxmemory", "100mb")
	ask(t, nodes[1], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	b := closing(t, New(dialCluster(t, nodes[0]), nil))
	e := examine(t, b, 2*time.Second)
	if f := found(t, e, "redis-eviction", health.Error); f.Server != nodes[1].Addr() {
		t.Errorf("it is said of %s, not of %s", f.Server, nodes[1].Addr())
	}
	if f, err := b.Eviction(t.Context()); err != nil || f == nil || !strings.Contains(f.String(), "maxmemory-policy allkeys-lru") {
		t.Errorf("Eviction answers %v, %v", f, err)
	}
	if len(e.Hosts) != 3 || e.Failover == 0 {
		t.Errorf("it is described as %+v", e)
	}
}
