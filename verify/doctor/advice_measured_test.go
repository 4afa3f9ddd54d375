package doctor_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

// A network in between is slow, or breaks.
func TestAdviceForASlowOrBrokenNetworkCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "request-tail", "requests-failed")
	s := testserver.Redis(t, testserver.Persist(true))
	proxy := faultproxy.Start(t, s.Addr(), faultproxy.Redis)
	url := strings.Replace(s.URL(), s.Addr(), proxy.Addr(), 1)
	at := func() driver.Backend { return open(t, url).Backend }
	proxy.Delay(200 * time.Millisecond)
	ttl := 500 * time.Millisecond
	if left := followFrom(t, &ttl, at, func(statements []string) error {
		_, err := longer(&ttl, statements[0])
		return err
	}); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	proxy.Resume()

	// The lock that is renewed is taken, and then the network breaks eight times.
	var steps atomic.Int32
	proxy.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if bytes.Contains(r.Data, []byte("fencelock/doctor/")) && steps.Add(1) > 3 && steps.Load() < 12 {
			return faultproxy.DropRequest
		}
		return faultproxy.Pass
	})
	byHand(t, "warning requests-failed", "run doctor on the host of the store", time.Minute, func() driver.Backend {
		steps.Store(0)
		return at()
	}, func() { url = s.URL() })
}

func TestAdviceForAnEtcdThatIsSlowCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "etcd-latency")
	etcd := testserver.Etcd(t)
	slow := faultproxy.Start(t, etcd.Addr(), faultproxy.Framer{})
	slow.Delay(550 * time.Millisecond)
	url := "etcd://" + slow.Addr()
	at := func() driver.Backend { return open(t, url).Backend }
	byHand(t, "warning etcd-latency", "run doctor on the host of a member", time.Minute, at, func() {
		url = etcd.URL()
	})
}

// A failover takes as long as --failover says.
func TestAdviceForALongFailoverCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "failover-time")
	b := open(t, testserver.Redis(t, testserver.Persist(true)).URL()).Backend
	check := func(ttl time.Duration) []health.Finding {
		r, err := doctor.Check(t.Context(), b, &doctor.Options{
			TTL: ttl, Failover: 32 * time.Second, Requests: 20, For: 100 * time.Millisecond,
		})
		must(t, err)
		return r.Findings
	}
	before := check(30 * time.Second)
	if codes(before) != "failover-time" {
		t.Fatalf("found: %v", before)
	}
	var ttl time.Duration
	if followed, err := longer(&ttl, before[0].Remedy); !followed || err != nil {
		t.Fatalf("%q, %v", before[0].Remedy, err)
	}
	if after := check(ttl); len(after) > 0 {
		t.Fatalf("found: %v", after)
	}
	feeds(t, "failover-time")
}

// Something empties the store while locks are held.
func TestAdviceForAStoreThatForgetsCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "lock-lost")
	s := testserver.Redis(t, testserver.Persist(true))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = s.Ask("FLUSHALL")
		}
	}()
	byHand(t, "error lock-lost", "stop what deletes data there (FLUSHALL", time.Minute, func() driver.Backend {
		return open(t, s.URL()).Backend
	}, func() {
		stop()
		<-ended
	})
}

// One master of a Cluster is down, so the settings of all cannot be read.
func TestAdviceForSettingsThatCannotBeReadCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "not-examined")
	g := testserver.RedisCluster(t, testserver.Persist(true), testserver.Config("cluster-require-full-coverage no"))
	var masters []*testserver.Server
	for _, s := range g.Servers {
		role, err := s.Ask("ROLE")
		must(t, err)
		if strings.Contains(role, "master") {
			masters = append(masters, s)
		}
		_, err = s.Ask("CONFIG", "SET", "cluster-replica-no-failover", "yes")
		must(t, err)
	}
	must(t, masters[0].Kill())
	url := "redis+cluster://" + strings.Join(g.Addrs(), ",")
	// The names are drawn, and four of nine pairs of masters run: no draw waits long for one that does not.
	until(t, "both locks that doctor takes are on masters that run", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := doctor.Check(ctx, open(t, url).Backend, &doctor.Options{Requests: 2, For: time.Millisecond})
		return err == nil && strings.Contains(codes(r.Findings), "not-examined") &&
			strings.Contains(r.Findings[0].Remedy+r.Findings[len(r.Findings)-1].Remedy, "do what the message says")
	})
	must(t, masters[0].Restart())
	until(t, "the master serves its slots", func() bool {
		_, err := masters[0].Ask("CLUSTER", "INFO")
		r, failed := doctor.Check(t.Context(), open(t, url).Backend, &doctor.Options{Requests: 2, For: time.Millisecond})
		return err == nil && failed == nil && !strings.Contains(codes(r.Findings), "not-examined")
	})
	feeds(t, "not-examined")
}

// wrongClock is C that gives a process a clock of its own.
const wrongClock = `#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static double begun;
int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec now;
	if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) != 0) return -1;
	double t = now.tv_sec + now.tv_nsec / 1e9;
	const char *rate = getenv("CLOCK_RATE"), *ahead = getenv("CLOCK_AHEAD");
	if (begun == 0) begun = t;
	t = begun + (t - begun) * (rate ? atof(rate) : 1) + (ahead ? atof(ahead) : 0);
	tv->tv_sec = (time_t)t;
	tv->tv_usec = (suseconds_t)((t - (double)tv->tv_sec) * 1e6);
	return 0;
}
`

// The clock of the store's host is wrong. That it is set right is a restart of the server here.
func TestAdviceForClocksCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "clock-rate", "clock-offset")
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	must(t, os.WriteFile(source, []byte(wrongClock), 0o600))
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for finding, wrong := range map[string]string{
		"warning clock-rate": "CLOCK_RATE=4", "note clock-offset": "CLOCK_AHEAD=-30",
	} {
		s := testserver.Redis(t, testserver.Persist(true), testserver.Env("LD_PRELOAD="+library, wrong))
		byHand(t, finding, "timedatectl set-ntp true on both hosts", time.Minute, func() driver.Backend {
			return open(t, s.URL()).Backend
		}, func() { must(t, s.Restart(testserver.Env("LD_PRELOAD="))) })
	}
}

func TestAdviceForReplicasOfRedisCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "redis-replica", "redis-replicas-missing")
	g := testserver.RedisSentinel(t, testserver.Persist(true), testserver.Config("min-replicas-to-write 1"))
	url := "redis://" + g.Servers[1].Addr()
	at := func() driver.Backend { return open(t, url).Backend }
	byHand(t, "error redis-replica", "connect to the master", time.Minute, at, func() { url = "redis://" + g.Servers[0].Addr() })
	url = "redis://" + g.Servers[1].Addr()
	for _, f := range check(t, at(), time.Minute).Findings {
		if f.Code == "redis-replica" {
			form := regexp.MustCompile(`redis\+sentinel://[^ ]+`).FindString(f.Remedy)
			byHand(t, "error redis-replica", "through Sentinel", time.Minute, at, func() {
				url = strings.NewReplacer("host:port", g.Addrs()[0], "master-name", g.Name, "/db", "/0").Replace(form)
			})
		}
	}

	s := testserver.Redis(t, testserver.Persist(true))
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	replicas := 1
	wanting := func() driver.Backend {
		b := redislock.New(rdb, &redislock.Options{Replicas: replicas})
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	byHand(t, "error redis-replicas-missing", "start the missing replicas", time.Minute, wanting, func() {
		replicaOf(t, s)
	})
	replicas = 3
	byHand(t, "error redis-replicas-missing", "set Options.Replicas to how many there are", time.Minute, wanting, func() { replicas = 1 })
}

func TestAdviceForServersOfAQuorumCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "quorum-same-store", "quorum-shared-host", "quorum-member-down")
	servers, addrs := members(t)
	one, down := addrs[0], servers[1]
	quorum := func() driver.Backend { return open(t, "redlock://"+strings.Join(addrs, ",")).Backend }
	must(t, quorum().(*quorumlock.Backend).Initialise(t.Context()))
	must(t, down.Kill())
	byHand(t, "warning quorum-member-down", "start the member", time.Minute, quorum, func() { must(t, down.Restart()) })

	addrs[2] = strings.Replace(one, "127.0.0.2", "127.0.0.1", 1)
	byHand(t, "error quorum-same-store", "start an empty server, and write its host:port into the URL", time.Minute, quorum, func() {
		_, addrs[2] = memberOn(t, 5)
	})
	_, addrs[2] = memberOn(t, 2)
	shared := byHand(t, "warning quorum-shared-host", "by an empty server on a host of its own", time.Minute, quorum, func() {
		_, addrs[2] = memberOn(t, 6)
	})
	if text := shared.String(); !strings.Contains(text, "127.0.0.2 has node 1") || !strings.Contains(text, "node 3") {
		t.Errorf("the members are not named: %s", text)
	}
}

func TestAdviceForSetsOfTablesAndStandbysCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "postgres-schemas", "postgres-read-splitting")
	s := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	_, run := database(t, s.URL())
	url := s.URL()
	here := func() driver.Backend { return open(t, url).Backend }
	check(t, here(), time.Minute) // it makes the tables
	standby := standbyOf(t, s)
	split := testserver.SplitReads(t, s, standby, func(statement string) bool {
		return strings.HasPrefix(statement, "SELECT CASE WHEN current_setting(")
	})
	url = strings.Replace(s.URL(), s.Addr(), split.Addr(), 1)
	byHand(t, "warning postgres-read-splitting", "connect to the primary, or past the pooler", time.Minute, here, func() { url = s.URL() })

	run("CREATE SCHEMA other")
	for _, table := range []string{"meta", "swap", "lease", "history"} {
		run("CREATE TABLE other.fencelock_" + table + " (LIKE public.fencelock_" + table + " INCLUDING ALL)")
	}
	for _, f := range check(t, here(), time.Minute).Findings {
		if f.Code == "postgres-schemas" {
			t.Log(f.Remedy)
			_, steps, _ := strings.Cut(f.Remedy, ", then ")
			byHand(t, "error postgres-schemas", steps, time.Minute, here, func() { run(steps) })
		}
	}
}
