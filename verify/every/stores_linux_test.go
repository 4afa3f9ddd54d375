package every

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/zklock"
)

// ttl is the lease of all tests. With two seconds, the shortest that etcd keeps, a busy machine lost leases.
const ttl = 5 * time.Second

// store is one kind of store, with servers that all tests share.
type store struct {
	name    string
	servers int
	disk    int // MB for each of them
	start   func(ctx context.Context, dir string) (*testserver.Server, error)
	// open returns a backend that reaches the servers at these addresses.
	open func(t testing.TB, addrs []string) driver.Backend
	from bool // a way is known by the client's address, not by the server's
	// pause is how long one leaves a lock free so that others get it: where there is no
	// line, they ask for it now and then.
	pause time.Duration
	wall  bool // leases end by the server's wall clock

	once    sync.Once
	running []*testserver.Server
	disks   []string
	failed  error
}

var stores = []*store{
	{
		name: "Redis", servers: 1, disk: 16, wall: true, open: openRedis,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartRedis(ctx, dir, anyRedis, testserver.Persist(true), testserver.Config("appendfsync everysec"))
		},
	},
	{
		name: "PostgreSQL", servers: 1, disk: 160, wall: true, open: openPostgres,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartPostgres(ctx, dir, testserver.Config("listen_addresses = '0.0.0.0'"))
		},
	},
	{
		name: "MariaDB", servers: 1, disk: 400, wall: true, open: openMariaDB,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartMariaDB(ctx, dir, testserver.Config("bind-address=0.0.0.0"))
		},
	},
	{
		name: "etcd", servers: 1, disk: 300, from: true, open: openEtcd,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartEtcd(ctx, dir, testserver.Persist(true))
		},
	},
	{
		name: "ZooKeeper", servers: 1, disk: 160, open: openZooKeeper,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartZooKeeper(ctx, dir, testserver.Persist(true), testserver.Config("clientPortAddress=0.0.0.0"))
		},
	},
	{
		// Who is refused asks again, with back-off.
		name: "quorum", servers: 5, disk: 16, wall: true, pause: ttl / 2, open: openQuorum,
		start: func(ctx context.Context, dir string) (*testserver.Server, error) {
			return testserver.StartRedis(ctx, dir, anyRedis)
		},
	},
}

var anyRedis = testserver.Config("bind 0.0.0.0", "protected-mode no")

// scratch is where servers keep their files.
var scratch = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fencelock-every-*")
	if err == nil {
		err = os.Chmod(dir, 0o755) // some servers run as another user
	}
	return dir, err
})

// serve starts the servers, once for all tests.
func (s *store) serve(t testing.TB) {
	t.Helper()
	s.once.Do(func() {
		root, err := scratch()
		if err != nil {
			s.failed = err
			return
		}
		for i := range s.servers {
			dir := filepath.Join(root, fmt.Sprint(s.name, i))
			if s.failed = os.Mkdir(dir, 0o755); s.failed != nil {
				return
			}
			if s.failed = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=755", s.disk)); s.failed != nil {
				return
			}
			s.disks = append(s.disks, dir)
			one, err := s.start(context.Background(), dir)
			if err != nil {
				s.failed = err
				return
			}
			s.running = append(s.running, one)
		}
		if s.name == "quorum" {
			s.failed = openQuorum(t, s.addrs("127.0.0.1")).(*quorumlock.Backend).Initialise(context.Background())
		}
	})
	if s.failed != nil {
		t.Fatalf("%s: %v", s.name, s.failed)
	}
}

// stopServers ends the servers of all stores.
func stopServers() error {
	var errs []error
	for _, s := range stores {
		for _, one := range s.running {
			errs = append(errs, one.Stop())
		}
		for _, dir := range s.disks {
			errs = append(errs, syscall.Unmount(dir, syscall.MNT_DETACH))
		}
	}
	if dir, err := scratch(); err == nil {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// addrs are where a client finds the servers by way of an address of the loopback
// interface: what goes by one way can be cut without the others.
func (s *store) addrs(ip string) []string {
	var addrs []string
	for _, one := range s.running {
		_, port, _ := net.SplitHostPort(one.Addr())
		addrs = append(addrs, net.JoinHostPort(ip, port))
	}
	return addrs
}

// each runs f on each store, at the same time, and returns when all have ended.
func each(t *testing.T, f func(t *testing.T, s *store)) {
	t.Run("each", func(t *testing.T) {
		for _, s := range stores {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.serve(t)
				f(t, s)
			})
		}
	})
}

// client opens a Client at these addresses, with connections of its own.
func (s *store) client(t testing.TB, addrs []string) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, s.open(t, addrs), &fencelock.Options{TTL: ttl, HandOff: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

// near is a client whose way to the servers is left alone.
func (s *store) near(t testing.TB) *fencelock.Client { return s.client(t, s.addrs("127.0.0.1")) }

var ways atomic.Int32

// way is an address that nobody else goes by.
func way() string { return fmt.Sprintf("127.0.1.%d", ways.Add(1)) }

// far is a client with a way to the servers of its own, and the address that is on it.
func (s *store) far(t testing.TB) (*fencelock.Client, string) {
	addr := way()
	return s.client(t, s.addrs(addr)), addr
}

var keys atomic.Int32

func newKey(t testing.TB) string { return fmt.Sprintf("%s %d", t.Name(), keys.Add(1)) }

// quick is how soon a client notices that nobody answers it.
const quick = time.Second

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}
func (noLog) Print(...any)                           {}

func redisClient(addr string) *redis.Client {
	redis.SetLogger(noLog{})
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick})
}

func openRedis(t testing.TB, addrs []string) driver.Backend {
	rdb := redisClient(addrs[0])
	t.Cleanup(func() { rdb.Close() })
	return redislock.New(rdb, nil)
}

func openQuorum(t testing.TB, addrs []string) driver.Backend {
	var members []driver.Backend
	for _, a := range addrs {
		rdb := redisClient(a)
		t.Cleanup(func() { rdb.Close() })
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &ballot.Membership{}}))
	}
	return quorumlock.New(members, nil)
}

func openPostgres(t testing.TB, addrs []string) driver.Backend {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addrs[0], Path: "/postgres", RawQuery: "sslmode=disable&connect_timeout=1"}
	config, err := pgx.ParseConfig(u.String())
	steps.Must(t, err)
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	return sqllock.New(db, sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: storeurl.Listen(config, nil)})
}

func openMariaDB(t testing.TB, addrs []string) driver.Backend {
	o := mysql.NewConfig()
	o.Net, o.Addr, o.User, o.DBName, o.Timeout, o.Logger = "tcp", addrs[0], "root", "locks", quick, noLog{}
	connector, err := mysql.NewConnector(o)
	steps.Must(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	return sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true})
}

// openEtcd listens at one address only: the client's own is another then.
func openEtcd(t testing.TB, addrs []string) driver.Backend {
	ip, port, _ := net.SplitHostPort(addrs[0])
	dial := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext(ctx, "tcp", addr)
	})
	// A busy machine is late now and then, and is tried again soon.
	again := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second},
		MinConnectTimeout: quick,
	})
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{net.JoinHostPort("127.0.0.1", port)}, DialTimeout: quick, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{dial, again},
	})
	steps.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return etcdlock.New(c, nil)
}

func openZooKeeper(_ testing.TB, addrs []string) driver.Backend {
	return zklock.New(addrs, &zklock.Options{SessionTimeout: ttl * 3 / 2})
}

var lock = testclient.Lock

// patience is how long a test waits for what must happen within a lease or two.
const patience = time.Minute

// renewed waits until a lease has been renewed by itself, and renews it once more.
func renewed(t testing.TB, what string, lease *fencelock.Lease) {
	t.Helper()
	before := lease.Deadline()
	until(t, what+" is renewed", func() error {
		if err := lease.Err(); err != nil {
			t.Fatalf("%s was lost: %v", what, err)
		}
		if later := lease.Deadline().Sub(before); later < ttl/10 { // it is reckoned anew each time
			return fmt.Errorf("its deadline has moved by %v", later)
		}
		return nil
	})
	steps.Well(t, "Renew of "+what, lease.Renew(t.Context()))
}

// ended waits until a lease is lost.
func ended(t testing.TB, lease *fencelock.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder was not told of its loss")
	}
	steps.Is(t, "the holder was told", lease.Err(), fencelock.ErrLost)
}

// queue is a Lock that goes on behind.
type queue struct {
	key   string
	lease *fencelock.Lease
	err   error
	at    time.Time
	done  chan struct{}
}

// lockBehind calls Lock, and returns at once.
func lockBehind(t testing.TB, c *fencelock.Client, key string) *queue {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	q := &queue{key: key, done: make(chan struct{})}
	t.Cleanup(func() { cancel(); <-q.done })
	go func() {
		defer close(q.done)
		q.lease, q.err = c.Lock(ctx, key)
		q.at = time.Now()
	}()
	return q
}

// granted waits for the grant.
func (q *queue) granted(t testing.TB, what string) *fencelock.Lease {
	t.Helper()
	<-q.done
	if q.err != nil {
		t.Fatalf("%s was told %v", what, q.err)
	}
	return q.lease
}

// waits checks that it has not been granted the lock.
func (q *queue) waits(t testing.TB) {
	t.Helper()
	select {
	case <-q.done:
		t.Fatalf("another was granted the lock meanwhile: %v", q.err)
	default:
	}
}

// inLine waits until it is the second in line.
func (q *queue) inLine(t testing.TB, c *fencelock.Client) {
	t.Helper()
	until(t, "somebody is second in line", func() error {
		l, err := c.Line(t.Context(), q.key)
		if err == nil && len(l.Claims) == 2 {
			return nil
		}
		select {
		case <-q.done:
			return fmt.Errorf("the line is %+v, %v; Lock has returned with %v", l, err, q.err)
		default:
			return fmt.Errorf("the line is %+v, %v", l, err)
		}
	})
}

// until waits for what missing says is missing, which is nil when it has come to pass.
func until(t testing.TB, what string, missing func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := missing()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("it did not come to pass that %s: %v", what, err)
		}
	}
}

func release(t testing.TB, what string, lease *fencelock.Lease) {
	t.Helper()
	steps.Well(t, "Release by "+what, lease.Release(t.Context()))
}
