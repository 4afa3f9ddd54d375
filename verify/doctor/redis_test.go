package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

var until = steps.Eventually

func config(t *testing.T, s *testserver.Server, pairs ...string) {
	t.Helper()
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, " ")
		_, err := s.Ask("CONFIG", "SET", name, value)
		must(t, err)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	g := testserver.RedisSentinel(t, testserver.Config("min-replicas-to-write 1"))
	var addrs []string
	for _, s := range g.Sentinels {
		addrs = append(addrs, s.Addr())
		_, err := s.Ask("SENTINEL", "SET", g.Name, "down-after-milliseconds", "30000")
		must(t, err)
	}
	s := open(t, "redis+sentinel://"+strings.Join(addrs, ",")+"/"+g.Name+"/0")
	failover := s.Failover(t.Context())
	steps.Same(t, "a failover takes", failover, 32*time.Second)
	r, err := doctor.Check(t.Context(), s.Backend, &doctor.Options{Failover: failover, Requests: 20, For: 100 * time.Millisecond})
	must(t, err)
	// Slow requests add to the advice.
	if text := fmt.Sprint(r.Findings); !strings.Contains(text, "failover-time") || r.Advice.TTL < 50*time.Second {
		t.Errorf("the report is %+v; want failover-time, and a TTL that outlives a failover of %v", r, failover)
	}
}

// TestRedisWithARenamedCommand: an administrator has taken CONFIG away from everybody. No right gives it back.
func TestRedisWithARenamedCommand(t *testing.T) {
	t.Parallel()
	always := testserver.Config("appendfsync always")
	s := testserver.Redis(t, testserver.Persist(true), always, testserver.Config(`rename-command CONFIG ""`))
	byHand(t, "note redis-unreadable", "remove rename-command CONFIG from redis.conf", time.Minute, func() driver.Backend {
		return open(t, s.URL()).Backend
	}, func() { s = testserver.Redis(t, testserver.Persist(true), always) })
}
