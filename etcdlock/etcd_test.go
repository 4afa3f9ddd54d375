// Package etcdlock_test holds etcdlock to the laws of package driver on real servers,
// of one member and of three, and to what leases, watches and elections do to it.
package etcdlock_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

// lease is short for a test, and the shortest that the server grants.
const lease = 2 * time.Second

// lag is how much later than its lease a claim may end: ten times as late as a server that looks twice a
// second, and removes it by a step of the cluster.
const lag = 10 * time.Second

// newPrefix is one that nobody else uses.
func newPrefix() string { return rand.Text() + "/" }

// exclusive are claims that exclude one another. kinds are claims of all kinds.
func exclusive() map[string]driver.Claim {
	return map[string]driver.Claim{"writer": steps.Claim("k"), "semaphore": steps.Permits("k", 1, 1)}
}

func kinds() map[string]driver.Claim {
	return map[string]driver.Claim{"writer": steps.Claim("k"), "reader": steps.Reader("k"), "semaphore": steps.Permits("k", 1, 1)}
}

// store is what a worker process opens.
type store struct{ Addr, Prefix string }

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(s store) (driver.Backend, func(), error) {
		c, err := connect(clientv3.Config{}, s.Addr)
		if err != nil {
			return nil, nil, err
		}
		return etcdlock.New(c, &etcdlock.Options{Prefix: s.Prefix}), func() { c.Close() }, nil
	}))
	testserver.Parallel(24)
	before := runtime.NumGoroutine()
	code := m.Run()
	testserver.StopShared(code != 0)
	if err := asManyGoroutines(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		code = 1
	}
	os.Exit(code)
}

// asManyGoroutines waits until there are no more than n.
func asManyGoroutines(n int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > n; <-tick.C {
		if time.Now().After(end) {
			all := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines are left, of %d before:\n%s", runtime.NumGoroutine(), n, all[:runtime.Stack(all, true)])
		}
	}
	return nil
}

// server has one member, and each test its own prefix.
var server = testserver.Shared(testserver.StartEtcd)

// sleep lets a lease get older: the server counts it by its own clock.
func sleep(d time.Duration) { <-time.After(d) } // real time: as above

// isClaim reports whether a key of etcd is not a mark, an epoch or a tombstone.
func isClaim(name string) bool {
	last := name[strings.LastIndexByte(name, '/')+1:]
	return last != "m" && last != "y" && !strings.HasPrefix(last, "z")
}

func connect(c clientv3.Config, at ...string) (*clientv3.Client, error) {
	c.Endpoints, c.DialTimeout, c.Logger = at, 5*time.Second, zap.NewNop()
	return clientv3.New(c)
}

// dial connects until the test ends.
func dial(t testing.TB, c clientv3.Config, at ...string) *clientv3.Client {
	t.Helper()
	etcd, err := connect(c, at...)
	steps.Must(t, err)
	t.Cleanup(func() { etcd.Close() })
	return etcd
}

func client(t testing.TB, ss ...*testserver.Server) *clientv3.Client {
	t.Helper()
	var at []string
	for _, s := range ss {
		at = append(at, s.Addr())
	}
	return dial(t, clientv3.Config{}, at...)
}

// backend keeps locks below a prefix, and is closed before its client.
func backend(t testing.TB, c *clientv3.Client, prefix string) *etcdlock.Backend {
	t.Helper()
	b := etcdlock.New(c, &etcdlock.Options{Prefix: prefix})
	t.Cleanup(func() { b.Close() })
	return b
}

// scene is what most tests play in: a server and a prefix of its own, which must have no
// claim in the end.
type scene struct {
	t      testing.TB
	server *testserver.Server
	prefix string
	etcd   *clientv3.Client // the test's own
}

// newScene is on the shared server.
func newScene(t testing.TB) *scene {
	t.Helper()
	return sceneOn(t, server(t))
}

func sceneOn(t testing.TB, s *testserver.Server) *scene {
	t.Helper()
	x := &scene{t: t, server: s, prefix: newPrefix(), etcd: client(t, s)}
	t.Cleanup(func() {
		for _, k := range x.keys("") {
			if isClaim(k) && !t.Failed() {
				t.Errorf("the key %q is left", k)
			}
		}
	})
	return x
}

// sceneOfOne is a scene for a test that runs beside others, with one Backend.
func sceneOfOne(t *testing.T) (*scene, *etcdlock.Backend) {
	t.Helper()
	t.Parallel()
	x := newScene(t)
	return x, x.backend()
}

// sceneOfTwo is sceneOfOne with two of them.
func sceneOfTwo(t *testing.T) (x *scene, a, b *etcdlock.Backend) {
	t.Helper()
	x, a = sceneOfOne(t)
	return x, a, x.backend()
}

// backend is a view of the scene with a client of its own, as another process has it.
func (x *scene) backend() *etcdlock.Backend {
	x.t.Helper()
	return backend(x.t, client(x.t, x.server), x.prefix)
}

// keys lists what begins with the prefix and this.
func (x *scene) keys(begin string) (keys []string) {
	x.t.Helper()
	answer, err := x.etcd.Get(context.Background(), x.prefix+begin, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	steps.Must(x.t, err)
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// value is what a key holds.
func (x *scene) value(name string) string {
	x.t.Helper()
	answer, err := x.etcd.Get(steps.Soon(x.t), name)
	if err != nil || len(answer.Kvs) != 1 {
		x.t.Fatalf("%q has %v, %v", name, answer, err)
	}
	return string(answer.Kvs[0].Value)
}

// put and remove do by hand what others may do to our keys. They return the revision.
func (x *scene) put(name, value string) int64 {
	x.t.Helper()
	answer, err := x.etcd.Put(steps.Soon(x.t), name, value)
	steps.Must(x.t, err)
	return answer.Header.Revision
}

func (x *scene) remove(name string, opts ...clientv3.OpOption) int64 {
	x.t.Helper()
	answer, err := x.etcd.Delete(steps.Soon(x.t), name, opts...)
	steps.Must(x.t, err)
	return answer.Header.Revision
}

// leases lists the leases of the server.
func (x *scene) leases() (ids []clientv3.LeaseID) {
	x.t.Helper()
	answer, err := x.etcd.Leases(steps.Soon(x.t))
	steps.Must(x.t, err)
	for _, l := range answer.Leases {
		ids = append(ids, l.ID)
	}
	return ids
}

func (x *scene) revoke(ids ...clientv3.LeaseID) {
	x.t.Helper()
	for _, id := range ids {
		steps.Must(x.t, steps.ErrOf(x.etcd.Revoke(steps.Soon(x.t), id)))
	}
}

// claims are what b shows of a line.
func claims(t testing.TB, b *etcdlock.Backend, key string) []driver.Standing {
	t.Helper()
	l, err := b.Line(steps.Soon(t), key)
	steps.Must(t, err)
	return l.Claims
}

// watchers returns how many watches are open on a server, by its own count.
func watchers(t testing.TB, s *testserver.Server) string {
	t.Helper()
	all, err := metrics(s)
	steps.Must(t, err)
	return all["etcd_debugging_mvcc_watcher_total"]
}

// watched waits until a watch is open on one of these servers.
func watched(t testing.TB, ss ...*testserver.Server) {
	t.Helper()
	testserver.Eventually(t, time.Minute, "a watch is open", func() bool {
		return slices.ContainsFunc(ss, func(s *testserver.Server) bool { return watchers(t, s) != "0" })
	})
}

// requests reads how many requests of each kind the server was asked, as it counts
// them itself.
func requests(t testing.TB, s *testserver.Server) map[string]int {
	t.Helper()
	all, err := metrics(s)
	steps.Must(t, err)
	counts := map[string]int{}
	for name, value := range all {
		rest, ok := strings.CutPrefix(name, "grpc_server_started_total{")
		if !ok {
			continue
		}
		_, method, _ := strings.Cut(rest, `grpc_method="`)
		method, _, _ = strings.Cut(method, `"`)
		n, err := strconv.ParseFloat(value, 64)
		steps.Must(t, err)
		counts[method] += int(n)
	}
	return counts
}

// metrics are the numbers that the server tells of itself.
func metrics(s *testserver.Server) (map[string]string, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	all := map[string]string{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if at := bytes.LastIndexByte(lines.Bytes(), ' '); at > 0 {
			all[lines.Text()[:at]] = lines.Text()[at+1:]
		}
	}
	return all, lines.Err()
}
