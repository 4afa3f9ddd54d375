// Package doctor_test plants what package doctor is to find: each setting in a real server
// that is set up wrong, and none in one that is set up well.
package doctor_test

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/storeurl"
)

var must = steps.Must

// open opens a store for a test.
func open(t *testing.T, url string) *storeurl.Store {
	t.Helper()
	s, err := storeurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// measured has the findings about the host of the tests, which may be busy. A test that makes one asks for it.
var measured = []string{"request-tail", "requests-failed", "etcd-latency", "clock-offset", "clock-rate"}

// check checks a store, in little time.
func check(t *testing.T, b driver.Backend, ttl time.Duration) doctor.Report {
	t.Helper()
	r, err := doctor.Check(t.Context(), b, &doctor.Options{TTL: ttl, Requests: 10, For: 100 * time.Millisecond})
	must(t, err)
	return r
}

// finds checks a store and wants exactly these findings, each with its severity.
func finds(t *testing.T, b driver.Backend, ttl time.Duration, want ...string) doctor.Report {
	t.Helper()
	r := check(t, b, ttl)
	var got []string
	for _, f := range r.Findings {
		if slices.Contains(measured, f.Code) {
			continue
		}
		got = append(got, f.Severity.String()+" "+f.Code)
		if f.Setting == "" || f.Value == "" || f.Why == "" || f.Remedy == "" {
			t.Errorf("something is missing in %+v", f)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got, want := strings.Join(got, ", "), strings.Join(want, ", "); got != want {
		t.Errorf("found: %s\n want: %s\n%+v", got, want, r.Findings)
	}
	return r
}

// Most of the time a test here waits for a server, or for a network that is slow on purpose.
func TestMain(m *testing.M) {
	testserver.Parallel(6)
	os.Exit(m.Run())
}

// until waits for what servers do.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testserver.Eventually(t, 3*time.Minute, what, holds)
}

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

// database opens the database of a URL for the test itself, with a function that runs
// statements there.
func database(t *testing.T, url string) (db *sql.DB, run func(statements ...string)) {
	t.Helper()
	u, err := storeurl.Parse(url, storeurl.Source{})
	must(t, err)
	db, err = u.SQL()
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			_, err := db.Exec(s)
			must(t, err)
		}
	}
}

// onFile opens a database that has a table of the program, and so keeps its journal mode.
func onFile(t *testing.T, path, pragmas string) driver.Backend {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&"+pragmas)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS own (x)")
	must(t, err)
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestBothStoresOfABridgeAreExamined: a bridge is held in both, so a bad setting of either endangers it.
func TestBothStoresOfABridgeAreExamined(t *testing.T) {
	t.Parallel()
	old, new := testserver.Redis(t, testserver.Persist(true)), testserver.Redis(t, testserver.Persist(true))
	store := open(t, "bridge:"+old.URL()+","+new.URL())
	config(t, old, "appendfsync always")
	config(t, new, "appendfsync always", "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	r := finds(t, store.Backend, time.Minute, "error redis-eviction")
	steps.Same(t, "it was found at", r.Findings[0].Server, "the new store (redis)")
	if text := store.Warning(t.Context()); !strings.Contains(text, "allkeys-lru") {
		t.Errorf("a command that begins warns of %q; want the eviction", text)
	}
}

// racers opens a store for so many clients, each with connections of its own.
func racers(t *testing.T, url string, clients int) (backends []driver.Backend) {
	t.Helper()
	for range clients {
		backends = append(backends, open(t, url).Backend)
	}
	return backends
}

// TestRaceFindsTwoMastersBehindOneAddress: an operator puts a load balancer before two Redis servers. Every
// request succeeds, and two programs hold one lock.
func TestRaceFindsTwoMastersBehindOneAddress(t *testing.T) {
	t.Parallel()
	one, two := testserver.Redis(t), testserver.Redis(t)
	balancer := faultproxy.Start(t, one.Addr(), faultproxy.Framer{})
	half := racers(t, "redis://"+balancer.Addr(), 4)
	for _, b := range half {
		steps.InLine(t, "it connects", b, "job", 0)
	}
	balancer.Aim(two.Addr())
	o, err := doctor.Race(t.Context(), append(half, racers(t, "redis://"+balancer.Addr(), 4)...), 32, 20)
	if err != nil || o.Several == 0 || o.Excludes() {
		t.Errorf("Race counted %+v, %v; want rounds with two winners", o, err)
	}
	o, err = doctor.Race(t.Context(), racers(t, one.URL(), 8), 32, 20)
	if err != nil || !o.Excludes() || o.One != 20 {
		t.Errorf("Race on one server counted %+v, %v; want one winner in each of 20 rounds", o, err)
	}
}
