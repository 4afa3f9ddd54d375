package torture

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// store is what a run tortures.
type store struct {
	service string // in the table
	url     string
	direct  string                   // what the torture itself asks, if that is not url
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
		"memory", "sqlite", "redis", "postgres", "pgbouncer", "mariadb", "etcd", "zookeeper", "redlock",
		"sentinel", "cluster", "etcd3", "zookeeper3", "s3", "nats", "nats3",
	}
}

// begin starts a store of its own in dir.
func begin(ctx context.Context, name, dir string) (s *store, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	h := &host{dir: dir}
	s = &store{ours: true, stop: h.stop}
	err = h.try(func() error {
		if s.url, err = s.start(name, h); err != nil {
			return err
		}
		s.findDisks(h)
		if name == "redlock" {
			s.service = "redlock+durable"
			return initialise(ctx, s.url, ballot.Membership{Durable: true})
		}
		return nil
	})
	if err != nil {
		h.stop()
		return nil, err
	}
	return s, s.plan()
}

// findDisks notes which disk is whose. Of Sentinel and Cluster the groups start their servers. A
// ZooKeeper that goes on after a full disk may leave a log that it cannot read when it starts
// again, so it has no such fault.
func (s *store) findDisks(h *host) {
	if strings.HasPrefix(s.url, "zk:") {
		return
	}
	for _, dir := range h.disks {
		i := slices.IndexFunc(s.world.servers, func(one *testserver.Server) bool {
			return strings.HasPrefix(one.Dir()+"/", dir+"/")
		})
		switch {
		case i >= 0:
			s.world.disks = append(s.world.disks, disk{dir, s.world.servers[i]})
		case strings.HasPrefix(s.url, "sqlite:"):
			s.world.disks = append(s.world.disks, disk{dir, nil})
		}
	}
}

// reach is a store that somebody else runs.
func reach(raw string) (*store, error) {
	s := &store{url: raw, stop: func() {}}
	return s, s.plan()
}

// plan says how workers come to what is at the URL, and what it has that can be broken.
func (s *store) plan() error {
	u, err := traffic.ParseURL(s.url)
	if err != nil {
		return err
	}
	if s.ours {
		direct, err := traffic.ParseURL(cmp.Or(s.direct, s.url))
		if err != nil {
			return err
		}
		s.world.clock, s.world.endStatements = stepClock(direct), statementEnder(direct)
		if u.Scheme == "nats" { // JetStream is "out of resources, will be DISABLED"; elections take up to nine seconds
			s.world.halts, s.world.elected = true, answering(direct)
		}
	}
	s.service = cmp.Or(s.service, u.Scheme)
	switch u.Scheme {
	case "memory":
		s.alone = true
	case "sqlite", "local":
		s.world.shared = true
	default:
		s.proxies = true
	}
	return nil
}

// answering returns a function that waits until the store at u answers, for a minute at most.
func answering(u *storeurl.URL) func(context.Context) error {
	return func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		opened, err := u.Open(within, storeurl.Config{})
		if err == nil {
			defer opened.Close()
			for err = opened.Ping(within); err != nil && traffic.Sleep(within, 50*time.Millisecond); {
				err = opened.Ping(within)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// single are the stores of one server that needs nothing more.
var single = map[string]func(testserver.TB, ...testserver.Option) *testserver.Server{
	"etcd": testserver.Etcd, "zookeeper": testserver.ZooKeeper, "nats": testserver.NATS,
}

// groups are those of three servers.
var groups = map[string]func(testserver.TB, int, ...testserver.Option) []*testserver.Server{
	"zookeeper3": testserver.ZooKeeperEnsemble, "nats3": testserver.NATSCluster,
}

// start starts what a store consists of, and returns its URL.
func (s *store) start(name string, h *host) (url string, err error) {
	keep := testserver.Persist(true)
	if one := single[name]; one != nil {
		return s.own(one(h, keep)), nil
	}
	if three := groups[name]; three != nil {
		return s.own(three(h, 3)...), nil
	}
	switch name {
	case "memory":
		return "memory:", nil
	case "sqlite":
		return "sqlite://" + filepath.Join(h.TempDir(), "locks.db"), nil
	case "redis":
		s.world.redis = true
		return s.own(testserver.Redis(h, keep)), nil
	case "postgres":
		return s.own(testserver.Postgres(h)), nil
	case "pgbouncer":
		behind := testserver.Postgres(h)
		s.direct = s.own(behind)
		// A pooler that has seen its server end tries again after 15 s, and says so to everybody until then. Each
		// transaction may run on another connection, which has other prepared statements.
		front := testserver.PgBouncer(h, behind, testserver.Config("server_login_retry = 1"))
		h.keepUp(front)
		return front.URL() + "&default_query_exec_mode=exec", nil
	case "mariadb":
		return s.own(testserver.MariaDB(h)), nil
	case "redlock":
		// Of servers that do not write down what they acknowledge, each that is restarted grants
		// nothing for five minutes. Three would be in that state soon, and the quorum then
		// rightly grants nothing at all.
		var all []*testserver.Server
		for range 5 {
			all = append(all, testserver.Redis(h, keep))
		}
		s.world.redis = true
		return strings.Replace(s.own(all...), "redis:", "redlock:", 1), nil
	case "sentinel":
		return s.sentinel(h)
	case "cluster":
		s.cluster = testserver.RedisCluster(h)
		s.world.failover = s.failover
		return "redis+cluster://" + strings.Join(s.cluster.Addrs(), ","), nil
	case "s3":
		return s.bucket(h, keep)
	case "etcd3":
		s.world.usurped = true // see TestThreeMembers/TheLeaderComesBack
		return s.own(testserver.EtcdCluster(h, 3)...), nil
	}
	return "", fmt.Errorf("no store is called %q; there are %s", name, strings.Join(Stores(), ", "))
}

// bucket starts a server of S3, and puts its credentials where workers find them.
func (s *store) bucket(h *host, keep testserver.Option) (url string, err error) {
	for variable, value := range testserver.S3Environment() {
		if err := os.Setenv(variable, value); err != nil {
			return "", err
		}
	}
	return s.own(testserver.S3(h, keep)), nil
}

// sentinel starts a group that fails over when it is told to. Otherwise a busy machine, which
// keeps a master from answering for half a second now and then, would bring failovers that
// nobody has written down, and what they forget would be taken for a breach.
func (s *store) sentinel(h *host) (url string, err error) {
	g := testserver.RedisSentinel(h)
	for _, one := range g.Sentinels {
		if _, err := one.Ask("SENTINEL", "SET", g.Name, "down-after-milliseconds", "60000"); err != nil {
			return "", err
		}
	}
	s.world.failover, s.world.lossy = func(*rand.Rand) error { return g.Failover() }, true
	return "redis+sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name, nil
}

// own has s be some servers, and returns the URL of all.
func (s *store) own(all ...*testserver.Server) (url string) {
	url = all[0].URL()
	for _, one := range all[1:] {
		url += "," + one.Addr()
	}
	s.world.servers = all
	return url
}

// initialise says of a quorum that it is new.
func initialise(ctx context.Context, raw string, as ballot.Membership) error {
	u, err := traffic.ParseURL(raw)
	if err != nil {
		return err
	}
	opened, err := u.Open(ctx, storeurl.Config{Membership: as})
	if err != nil {
		return err
	}
	defer opened.Close()
	return opened.Backend.(*quorumlock.Backend).Initialise(ctx)
}

// failover has a master of the cluster hand over: nothing that it has acknowledged is lost.
func (s *store) failover(rng *rand.Rand) error {
	masters := s.cluster.Masters()
	if len(masters) == 0 {
		return fmt.Errorf("the cluster has no master")
	}
	_, err := s.cluster.Failover(masters[rng.IntN(len(masters))])
	return err
}

// moveSlot begins to move the hash slot of a lock to another master, and returns what moves
// its keys and ends that.
func (s *store) moveSlot(rng *rand.Rand, key string) (finish func() error, err error) {
	slot := s.cluster.Slot(key)
	from := s.cluster.Master(slot)
	others := slices.DeleteFunc(s.cluster.Masters(), func(one *testserver.Server) bool { return one == from })
	if from == nil || len(others) == 0 {
		return nil, fmt.Errorf("hash slot %d has no master, or there is no other one", slot)
	}
	m, err := s.cluster.BeginMove(slot, others[rng.IntN(len(others))])
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
