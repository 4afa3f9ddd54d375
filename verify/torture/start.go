package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/fault"
	"github.com/fencelock/fencelock/verify/traffic"
)

// store is what a run tortures.
type store struct {
	service  string // in the table
	url      string
	servers  []fault.Server
	redis    bool
	volatile bool
	shared   bool // a stopped worker may stop the others
	alone    bool // one process sees it only
	proxies  bool // workers are sent through proxies
	ours     bool // nobody else uses it
	slot     func(*rand.Rand, string) (func() error, error)
	failover func(*rand.Rand) error
	lossy    bool // and then it may forget what it acknowledged
	usurped  bool // a server that was stopped and goes on may end leases that are alive
	stop     func()
}

// Stores are what Run starts by itself.
func Stores() []string {
	return []string{
		"memory", "sqlite", "redis", "postgres", "mariadb", "etcd", "zookeeper", "redlock",
		"sentinel", "cluster", "etcd3", "zookeeper3",
	}
}

// begin starts a store of its own in dir.
func begin(ctx context.Context, name, dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	one := func(s *testserver.Server, err error) (*store, error) {
		if err != nil {
			return nil, err
		}
		return &store{
			service: name, url: s.URL(), servers: []fault.Server{server{s}}, proxies: true,
			stop: func() { _ = s.Stop() },
		}, nil
	}
	keep := testserver.Persist(true)
	switch name {
	case "memory":
		return &store{service: name, url: "memory:", alone: true, stop: func() {}}, nil
	case "sqlite":
		return &store{service: name, url: "sqlite://" + filepath.Join(dir, "locks.db"), shared: true, stop: func() {}}, nil
	case "redis":
		s, err := one(testserver.StartRedis(ctx, dir, keep))
		if err == nil {
			s.redis = true
		}
		return s, err
	case "postgres":
		return one(testserver.StartPostgres(ctx, dir))
	case "mariadb":
		s, err := one(testserver.StartMariaDB(ctx, dir))
		if err == nil {
			s.service = "mysql"
		}
		return s, err
	case "etcd":
		return one(testserver.StartEtcd(ctx, dir, keep))
	case "zookeeper":
		s, err := one(testserver.StartZooKeeper(ctx, dir, keep))
		if err == nil {
			s.service = "zk"
		}
		return s, err
	case "redlock":
		return beginQuorum(ctx, dir)
	case "sentinel", "cluster", "etcd3", "zookeeper3":
		return beginGroup(name, dir)
	}
	return nil, fmt.Errorf("no store is called %q; there are %s", name, strings.Join(Stores(), ", "))
}

// beginQuorum starts five Redis servers that write down what they acknowledge. Of others
// each that is restarted grants nothing for five minutes, and three would be in that state
// soon: the quorum then rightly grants nothing at all.
func beginQuorum(ctx context.Context, dir string) (*store, error) {
	s := &store{service: "redlock+durable", redis: true, proxies: true}
	var stops []func()
	s.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	var hosts []string
	for i := range 5 {
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, err
		}
		r, err := testserver.StartRedis(ctx, own, testserver.Persist(true))
		if err != nil {
			s.stop()
			return nil, err
		}
		stops = append(stops, func() { _ = r.Stop() })
		s.servers = append(s.servers, server{r})
		hosts = append(hosts, r.Addr())
	}
	s.url = "redlock://" + strings.Join(hosts, ",")
	if err := initialise(ctx, s.url, driver.Membership{Durable: true}); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// initialise says of a quorum that it is new.
func initialise(ctx context.Context, raw string, as driver.Membership) error {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return err
	}
	q, end, err := traffic.OpenQuorum(ctx, u, as)
	if err != nil {
		return err
	}
	defer end()
	return errors.Join(q.Initialise(ctx), q.Close())
}

// reach is a store that somebody else runs.
func reach(raw string) (*store, error) {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	s := &store{service: u.Scheme, url: raw, stop: func() {}}
	switch u.Scheme {
	case "memory":
		s.alone = true
	case "sqlite", "local":
		s.shared = true
	default:
		s.proxies = true
	}
	return s, nil
}

// through returns the proxies that a worker goes through to what is at a URL: the URL
// that it is given, and the address of the proxy that asks where to, or nothing.
//
// Where servers tell clients of others, and where their names are in certificates, one
// proxy stands for all of them. Elsewhere each server has one of its own.
func through(raw string) (to, via string, proxies []*faultproxy.Proxy, err error) {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return "", "", nil, err
	}
	switch u.Scheme {
	case "rediss", "redis+sentinel", "redis+cluster", "redlock", "etcds":
		p, err := faultproxy.Listen("", faultproxy.Framer{})
		if err != nil {
			return "", "", nil, err
		}
		return raw, p.Addr(), []*faultproxy.Proxy{p}, nil
	}
	var hosts []string
	for _, h := range strings.Split(u.Host, ",") {
		p, err := faultproxy.Listen(h, faultproxy.Framer{})
		if err != nil {
			for _, p := range proxies {
				p.Close()
			}
			return "", "", nil, err
		}
		proxies, hosts = append(proxies, p), append(hosts, p.Addr())
	}
	there, err := url.Parse(raw)
	if err != nil {
		return "", "", nil, err
	}
	there.Host = strings.Join(hosts, ",")
	return there.String(), "", proxies, nil
}

// server is one of ours. Pause reaches the processes that it has started, too:
// PostgreSQL has one for each connection.
type server struct{ *testserver.Server }

func (s server) Restart() error { return s.Server.Restart() }

func (s server) Pause() error {
	if err := s.Server.Pause(); err != nil {
		return err
	}
	return signalAll(testserver.Children(s.Pid()), true)
}

func (s server) Continue() error {
	err := signalAll(testserver.Children(s.Pid()), false)
	return firstOf(err, s.Server.Continue())
}

func firstOf(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}
