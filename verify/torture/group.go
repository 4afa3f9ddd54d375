package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/internal/testserver"
)

// beginGroup starts servers that keep one store together.
func beginGroup(name, dir string) (s *store, err error) {
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
	s = &store{stop: h.stop}
	several := func(servers []*testserver.Server) string {
		var hosts []string
		for _, one := range servers {
			hosts = append(hosts, one.Addr())
			s.servers = append(s.servers, server{one})
		}
		s.proxies = true
		return strings.Join(hosts, ",")
	}
	switch name {
	case "sentinel":
		g := testserver.RedisSentinel(h)
		s.service, s.url = "redis+sentinel", "redis+sentinel://"+strings.Join(g.Addrs(), ",")+"/"+g.Name
		s.proxies = true
		s.failover, s.lossy = func(*rand.Rand) error { return g.Failover() }, true
	case "cluster":
		g := testserver.RedisCluster(h)
		s.service, s.url = "redis+cluster", "redis+cluster://"+strings.Join(g.Addrs(), ",")
		s.proxies = true
		s.slot = func(rng *rand.Rand, key string) (func() error, error) { return moveSlot(g, rng, key) }
		// The master hands over: nothing that it has acknowledged is lost.
		s.failover = func(rng *rand.Rand) error {
			master := g.Master(rng.IntN(testserver.ClusterSlots))
			if master == nil {
				return fmt.Errorf("a slot has no master")
			}
			_, err := g.Failover(master)
			return err
		}
	case "etcd3":
		s.service, s.url = "etcd", "etcd://"+several(testserver.EtcdCluster(h, 3))
		s.usurped = true // see TestThreeMembers/TheLeaderComesBack
	case "zookeeper3":
		s.service, s.url = "zk", "zk://"+several(testserver.ZooKeeperEnsemble(h, 3))
	}
	return s, nil
}

// moveSlot begins to move the slot of a lock to another master, and returns what moves its
// keys and ends that.
func moveSlot(g *testserver.ClusterGroup, rng *rand.Rand, key string) (func() error, error) {
	slot := g.Slot(key)
	from := g.Master(slot)
	others := slices.DeleteFunc(masters(g), func(s *testserver.Server) bool { return s == from })
	if from == nil || len(others) == 0 {
		return nil, fmt.Errorf("slot %d has no master, or there is no other one", slot)
	}
	to := others[rng.IntN(len(others))]
	m, err := g.BeginMove(slot, to)
	if err != nil {
		return nil, err
	}
	return func() error {
		for {
			more, err := m.Key()
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
		return m.End()
	}, nil
}

// masters are the servers that have one of a few slots, which are spread over all.
func masters(g *testserver.ClusterGroup) []*testserver.Server {
	var all []*testserver.Server
	for i := range 12 {
		if m := g.Master(i * testserver.ClusterSlots / 12); m != nil && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// host is what testserver needs of a test, where there is none.
type host struct {
	dir  string
	ends []func()
}

// failure is what Fatalf panics with.
type failure struct{ error }

func (h *host) Helper()             {}
func (h *host) Failed() bool        { return false }
func (h *host) Logf(string, ...any) {}
func (h *host) Cleanup(f func())    { h.ends = append(h.ends, f) }

func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		h.Fatalf("%v", err)
	}
	return dir
}

func (h *host) stop() {
	for i := len(h.ends) - 1; i >= 0; i-- {
		h.ends[i]()
	}
	h.ends = nil
}
