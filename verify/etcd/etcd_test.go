// Package etcd_test holds etcdlock to the laws of package driver on real servers,
// of one member and of three, and to what leases, watches and elections do to it.
package etcd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/testserver"
)

// Leases of etcd are seconds long, so most tests wait most of the time: many of them
// wait at once.
const atOnce = "24"

func TestMain(m *testing.M) {
	if worker() {
		return
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	// Goroutines are counted after the tests, so the servers that all of them share end
	// before.
	code := m.Run()
	if code == 0 {
		if err := shared.nothingLeft(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			code = 1
		}
	}
	shared.stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// servers are those that the whole package shares: each test has its own prefix.
type servers struct {
	mu  sync.Mutex
	one *testserver.Server
	dir string
}

var shared servers

// server is a server of one member.
func server(t testing.TB) *testserver.Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.one == nil {
		var err error
		if shared.dir, err = os.MkdirTemp("", "fencelock-etcd"); err != nil {
			t.Fatal(err)
		}
		if shared.one, err = testserver.StartEtcd(context.Background(), shared.dir); err != nil {
			t.Fatal(err)
		}
	}
	return shared.one
}

// nothingLeft holds the shared server to having no key of ours but marks and what keeps
// ids out, and no watch, when the leases of killed processes have ended. Leases cannot be
// told apart: one of a Backend that was closed while it held a claim runs out by itself.
func (s *servers) nothingLeft() error {
	if s.one == nil {
		return nil
	}
	c, err := connect(s.one.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); sleep(100 * time.Millisecond) {
		if err = s.leftNow(c); err == nil {
			return nil
		}
	}
	return err
}

func (s *servers) leftNow(c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range all.Kvs {
		if part := lastPart(kv.Key); part != "m" && !strings.HasPrefix(part, "z") {
			return fmt.Errorf("the key %q is left", kv.Key)
		}
	}
	watches := "?"
	err = metrics(s.one, func(name, value string) {
		if name == "etcd_debugging_mvcc_watcher_total" {
			watches = value
		}
	})
	if err == nil && watches != "0" {
		err = fmt.Errorf("%s watches are left", watches)
	}
	return err
}

// lastPart is what a key is for: a claim, a mark, or to keep an id out.
func lastPart(key []byte) string {
	return string(key[bytes.LastIndexByte(key, '/')+1:])
}

func (s *servers) stop() {
	if s.one == nil {
		return
	}
	if err := s.one.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(s.dir)
}

// client connects to servers until the test ends.
func client(t testing.TB, ss ...*testserver.Server) *clientv3.Client {
	t.Helper()
	var at []string
	for _, s := range ss {
		at = append(at, s.Addr())
	}
	return dial(t, at...)
}

func dial(t testing.TB, at ...string) *clientv3.Client {
	t.Helper()
	c, err := connect(at...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func connect(at ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: at, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// backend keeps locks below a prefix, and is closed before its client.
func backend(t testing.TB, c *clientv3.Client, prefix string) *etcdlock.Backend {
	t.Helper()
	b := etcdlock.New(c, &etcdlock.Options{Prefix: prefix})
	t.Cleanup(func() { b.Close() })
	return b
}

// newPrefix is one that nobody else uses.
func newPrefix() string { return rand.Text() + "/" }

// scene is what most tests play in.
type scene struct {
	t      testing.TB
	server *testserver.Server
	prefix string
	etcd   *clientv3.Client // the test's own
}

// newScene is a prefix of its own on the shared server, which must be empty in the
// end but for marks, and for what keeps ids out.
func newScene(t testing.TB) *scene {
	t.Helper()
	return sceneOn(t, server(t))
}

func sceneOn(t testing.TB, s *testserver.Server) *scene {
	t.Helper()
	x := &scene{t: t, server: s, prefix: newPrefix(), etcd: client(t, s)}
	t.Cleanup(func() {
		if !t.Failed() {
			x.empty()
		}
	})
	return x
}

// backend is a view of the scene with a client of its own, as another process has it.
func (x *scene) backend() *etcdlock.Backend {
	x.t.Helper()
	return backend(x.t, client(x.t, x.server), x.prefix)
}

// empty must find no claim.
func (x *scene) empty() {
	x.t.Helper()
	for _, k := range x.keys() {
		rest, _ := strings.CutPrefix(k, x.prefix)
		_, rest, _ = strings.Cut(rest, "/")
		if rest != "m" && !strings.HasPrefix(rest, "z") {
			x.t.Errorf("the key %q is left", k)
		}
	}
}

// keys lists everything below the prefix.
func (x *scene) keys() []string {
	x.t.Helper()
	answer, err := x.etcd.Get(context.Background(), x.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		x.t.Fatal(err)
	}
	var keys []string
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// leases lists the leases of the server.
func leases(t testing.TB, c *clientv3.Client) []clientv3.LeaseID {
	t.Helper()
	answer, err := c.Leases(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var ids []clientv3.LeaseID
	for _, l := range answer.Leases {
		ids = append(ids, l.ID)
	}
	return ids
}

// counters reads how many requests of each kind the server was asked, as it counts
// them itself.
func counters(t testing.TB, s *testserver.Server) map[string]int {
	t.Helper()
	counts := map[string]int{}
	err := metrics(s, func(name, value string) {
		rest, ok := strings.CutPrefix(name, "grpc_server_started_total{")
		if !ok {
			return
		}
		_, method, _ := strings.Cut(rest, `grpc_method="`)
		method, _, _ = strings.Cut(method, `"`)
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		counts[method] += int(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// gauge reads one number of the server.
func gauge(t testing.TB, s *testserver.Server, name string) (value string) {
	t.Helper()
	err := metrics(s, func(n, v string) {
		if n == name {
			value = v
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func metrics(s *testserver.Server, each func(name, value string)) error {
	request, err := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/metrics", nil)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if at := strings.LastIndexByte(lines.Text(), ' '); at > 0 {
			each(lines.Text()[:at], lines.Text()[at+1:])
		}
	}
	return lines.Err()
}

// lease is short for a test, and the shortest that the server grants.
const lease = 2 * time.Second

// lag is how much later than its lease a claim may end: the server looks twice a
// second, and the removal is a step of the cluster.
const lag = 2 * time.Second

// claim is an exclusive claim with a long lease.
func claim(key string) driver.Claim {
	return driver.Claim{
		Key: key, ID: rand.Text(), Owner: "test", Note: "a note",
		Capacity: driver.RW, Weight: driver.RW, TTL: time.Minute, Span: 1,
	}
}

func reader(key string) driver.Claim {
	c := claim(key)
	c.Weight = 1
	return c
}

func permits(key string, n, size int64) driver.Claim {
	c := claim(key)
	c.Weight, c.Capacity = n, size
	return c
}

func ttl(c driver.Claim, d time.Duration) driver.Claim {
	c.TTL = d
	return c
}

func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// soon ends with the test, or after 15 seconds.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// enter must succeed.
func enter(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket, err := b.Enter(soon(t), c)
	if err != nil {
		t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	return ticket
}

// hold must be granted at once.
func hold(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if !ticket.Granted {
		t.Fatalf("Enter on %q was not granted; want a grant", c.Key)
	}
	return ticket
}

// wait must stand in line.
func wait(t testing.TB, b driver.Backend, c driver.Claim) driver.Ticket {
	t.Helper()
	ticket := enter(t, b, c)
	if ticket.Granted {
		t.Fatalf("Enter on %q was granted; want it to wait", c.Key)
	}
	return ticket
}

func leave(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil {
		t.Fatalf("Leave on %q: %v", ticket.Key, err)
	}
}

func renew(t testing.TB, b driver.Backend, ticket driver.Ticket) error {
	t.Helper()
	return b.Renew(soon(t), []driver.Ticket{ticket})[0]
}

// granted waits until ticket is granted.
func granted(t testing.TB, b driver.Backend, ticket driver.Ticket) driver.Ticket {
	t.Helper()
	ctx := soon(t)
	for !ticket.Granted {
		now, err := b.Await(ctx, ticket)
		if err != nil {
			t.Fatalf("Await on %q: %v", ticket.Key, err)
		}
		ticket = now
	}
	return ticket
}

// persist repeats f, whose errors are outages, until it answers.
func persist(t testing.TB, what string, f func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := f(ctx)
		cancel()
		if err == nil {
			return
		}
		var permanent *driver.PermanentError
		if driver.Gone(err) || errors.As(err, &permanent) || time.Since(began) > 30*time.Second {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s, %v on: %v", what, time.Since(began).Round(time.Millisecond), err)
		sleep(100 * time.Millisecond)
	}
}

// persistLeave leaves, whatever attempts that takes. An attempt whose answer did not
// come may have been the one.
func persistLeave(t testing.TB, b driver.Backend, ticket driver.Ticket) {
	t.Helper()
	attempts := 0
	persist(t, "Leave", func(ctx context.Context) error {
		err := b.Leave(ctx, ticket, driver.Exit{})
		if attempts++; attempts > 1 && driver.Gone(err) {
			return nil
		}
		return err
	})
}

// sleep lets the server's clock go on.
func sleep(d time.Duration) { <-time.After(d) }
