package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// store is what a run tortures.
type store struct {
	service string // in the table
	url     string
	alone   bool                     // one process sees it only
	proxies bool                     // workers are sent through proxies
	ours    bool                     // nobody else uses it
	world   world                    // what the store has that can be broken
	cluster *testserver.ClusterGroup // nil if it is none
	stop    func()
}

// Stores are what Run starts by itself.
func Stores() []string {
	return []string{
		"memory", "sqlite", "redis", "postgres", "mariadb", "etcd", "zookeeper", "redlock",
		"sentinel", "cluster", "etcd3", "zookeeper3",
	}
}

// begin starts a store of its own in dir.
func begin(ctx context.Context, name, dir string) (s *store, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	h := &host{dir: dir}
	defer func() {
		if r := recover(); r != nil {
			failed, ours := r.(failure)
			if !ours {
				panic(r)
			}
			h.stop()
			s, err = nil, failed.error
		}
	}()
	s = &store{ours: true, stop: h.stop}
	return s, s.begin(ctx, name, h)
}

func (s *store) begin(ctx context.Context, name string, h *host) error {
	keep := testserver.Persist(true)
	switch name {
	case "memory":
		s.service, s.url, s.alone = name, "memory:", true
	case "sqlite":
		s.service, s.url, s.world.shared = name, "sqlite://"+filepath.Join(h.dir, "locks.db"), true
	case "redis":
		s.single(name, testserver.Redis(h, keep))
		s.world.redis = true
	case "postgres":
		s.single(name, testserver.Postgres(h))
	case "mariadb":
		s.single("mysql", testserver.MariaDB(h))
	case "etcd":
		s.single(name, testserver.Etcd(h, keep))
	case "zookeeper":
		s.single("zk", testserver.ZooKeeper(h, keep))
	case "redlock":
		return s.beginQuorum(ctx, h)
	case "sentinel":
		s.beginSentinel(h)
	case "cluster":
		s.beginCluster(h)
	case "etcd3":
		s.several("etcd", "etcd://", testserver.EtcdCluster(h, 3))
		s.world.usurped = true // see TestThreeMembers/TheLeaderComesBack
	case "zookeeper3":
		s.several("zk", "zk://", testserver.ZooKeeperEnsemble(h, 3))
	default:
		return fmt.Errorf("no store is called %q; there are %s", name, strings.Join(Stores(), ", "))
	}
	return nil
}

// single has s be one server.
func (s *store) single(service string, one *testserver.Server) {
	s.several(service, "", []*testserver.Server{one})
	s.url = one.URL()
}

// several has s be some servers.
func (s *store) several(service, scheme string, all []*testserver.Server) {
	var addrs []string
	for _, one := range all {
		addrs = append(addrs, one.Addr())
		s.world.servers = append(s.world.servers, server{one})
	}
	s.service, s.url, s.proxies = service, scheme+strings.Join(addrs, ","), true
}

// beginQuorum starts five Redis servers that write down what they acknowledge. Of others
// each that is restarted grants nothing for five minutes, and three would be in that state
// soon: the quorum then rightly grants nothing at all.
func (s *store) beginQuorum(ctx context.Context, h *host) error {
	var all []*testserver.Server
	for range 5 {
		all = append(all, testserver.Redis(h, testserver.Persist(true)))
	}
	s.several("redlock+durable", "redlock://", all)
	s.world.redis = true
	err := initialise(ctx, s.url, driver.Membership{Durable: true})
	if err != nil {
		h.stop()
	}
	return err
}

// initialise says of a quorum that it is new.
func initialise(ctx context.Context, raw string, as driver.Membership) error {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return err
	}
	opened, err := u.Open(ctx, storeurl.Config{Membership: as})
	if err != nil {
		return err
	}
	defer opened.Close()
	q := opened.Backend.(*quorumlock.Backend)
	return errors.Join(q.Initialise(ctx), q.Close())
}

func (s *store) beginSentinel(h *host) {
	g := testserver.RedisSentinel(h)
	s.service, s.url, s.proxies = "redis+sentinel", "redis+sentinel://"+strings.Join(g.Addrs(), ",")+"/"+g.Name, true
	s.world.failover, s.world.lossy = func(*rand.Rand) error { return g.Failover() }, true
}

func (s *store) beginCluster(h *host) {
	g := testserver.RedisCluster(h)
	s.service, s.url, s.proxies = "redis+cluster", "redis+cluster://"+strings.Join(g.Addrs(), ","), true
	s.cluster = g
	// The master hands over: nothing that it has acknowledged is lost.
	s.world.failover = func(rng *rand.Rand) error {
		master := g.Master(rng.IntN(testserver.ClusterSlots))
		if master == nil {
			return fmt.Errorf("a hash slot has no master")
		}
		_, err := g.Failover(master)
		return err
	}
}

// moveSlot begins to move the hash slot of a lock to another master, and returns what moves
// its keys and ends that.
func moveSlot(g *testserver.ClusterGroup, rng *rand.Rand, key string) (finish func() error, err error) {
	slot := g.Slot(key)
	from := g.Master(slot)
	others := slices.DeleteFunc(masters(g), func(s *testserver.Server) bool { return s == from })
	if from == nil || len(others) == 0 {
		return nil, fmt.Errorf("hash slot %d has no master, or there is no other one", slot)
	}
	m, err := g.BeginMove(slot, others[rng.IntN(len(others))])
	if err != nil {
		return nil, err
	}
	return func() error {
		for more := true; more; {
			if more, err = m.Key(); err != nil {
				return err
			}
		}
		return m.End()
	}, nil
}

// masters are the servers that have one of a few hash slots, which are spread over all.
func masters(g *testserver.ClusterGroup) []*testserver.Server {
	var all []*testserver.Server
	for i := range 12 {
		if m := g.Master(i * testserver.ClusterSlots / 12); m != nil && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
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
		s.world.shared = true
	default:
		s.proxies = true
	}
	return s, nil
}
