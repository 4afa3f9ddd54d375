package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/testserver"
)

// The stores that the libraries of a case keep their locks in.
const (
	onRedis     = "Redis"
	onEtcd      = "etcd"
	onZooKeeper = "ZooKeeper"
	onPostgres  = "PostgreSQL"
	onMariaDB   = "MariaDB"
)

// server is the server of one case, or the servers of a quorum. Each is as durable as it
// is by default: Redis answers from its memory, the others write to the disk before.
type server struct {
	nodes   []string // host:port
	version string   // of Redis
	all     []*testserver.Server
	redis   []*redis.Client // whose counters are read
}

// startServer starts the servers of a case, in folders below dir.
func startServer(ctx context.Context, c Case, dir string) (_ *server, err error) {
	sv := &server{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting %s: %w", c.Store, err), sv.stop())
		}
	}()
	for range c.servers {
		own, err := os.MkdirTemp(dir, "server-")
		if err != nil {
			return nil, err
		}
		one, err := startOne(ctx, c.Store, own)
		if err != nil {
			return nil, err
		}
		sv.all = append(sv.all, one)
		sv.nodes = append(sv.nodes, one.Addr())
		if c.Store == onRedis {
			sv.redis = append(sv.redis, redis.NewClient(&redis.Options{Addr: one.Addr()}))
		}
	}
	if c.Store == onRedis {
		sv.version = sv.redis[0].InfoMap(ctx, "server").Item("Server", "redis_version")
	}
	return sv, nil
}

func startOne(ctx context.Context, store, dir string) (*testserver.Server, error) {
	switch store {
	case onRedis:
		return testserver.StartRedis(ctx, dir)
	case onEtcd:
		synced := testserver.Config("--unsafe-no-fsync=false")
		return testserver.StartEtcd(ctx, dir, testserver.Persist(true), synced)
	case onZooKeeper:
		synced := testserver.Config("forceSync=yes")
		return testserver.StartZooKeeper(ctx, dir, testserver.Persist(true), synced)
	case onPostgres:
		return testserver.StartPostgres(ctx, dir, testserver.Config("fsync = on"))
	case onMariaDB:
		return testserver.StartMariaDB(ctx, dir, testserver.Config("innodb_flush_log_at_trx_commit=1"))
	}
	return nil, errors.New("no such store")
}

func (sv *server) stop() (err error) {
	for _, rdb := range sv.redis {
		err = errors.Join(err, rdb.Close())
	}
	for _, s := range sv.all {
		err = errors.Join(err, s.Stop())
	}
	return err
}

// counters are those of Redis at one moment, added up over the servers of a quorum.
type counters struct {
	requests float64 // scripts and direct commands: what only scripts call is none
	cpu      float64 // seconds that the main threads have used, also for the network
}

// counters asks the servers. direct are the commands, beside scripts, that are requests.
func (sv *server) counters(direct []string) (now counters, err error) {
	for _, rdb := range sv.redis {
		info, err := rdb.InfoMap(context.Background(), "commandstats", "cpu").Result()
		if err != nil {
			return now, fmt.Errorf("asking the server for its counters: %w", err)
		}
		now.add(info, direct)
	}
	return now, nil
}

func (c *counters) add(info map[string]map[string]string, direct []string) {
	scripts := []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}
	for _, command := range append(scripts, direct...) {
		c.requests += number(info["Commandstats"]["cmdstat_"+command], "calls=%g")
	}
	for name, seconds := range info["CPU"] {
		if strings.HasSuffix(name, "_main_thread") {
			c.cpu += number(seconds, "%g")
		}
	}
}

// number is the first number of what the server says, or 0.
func number(text, format string) (x float64) {
	_, _ = fmt.Sscanf(text, format, &x)
	return x
}
