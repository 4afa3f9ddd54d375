package redislock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/redis/go-redis/v9"
)

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
		e, err := New(rdb, nil).Examine(t.Context(), time.Minute)
		must(t, err)
		if !slices.ContainsFunc(e.Findings, func(f health.Finding) bool {
			return f.Code == "redis-rights" && f.Severity == health.Error && f.Remedy == "ACL SETUSER one "+without
		}) {
			t.Errorf("without %s the doctor finds %+v", without, e.Findings)
		}
		must(t, rdb.Close())
	}
}
