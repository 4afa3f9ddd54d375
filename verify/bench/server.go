package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

// storeOrder is the order of the stores other than Redis.
var storeOrder = []string{onEtcd, onZooKeeper, onPostgres, onMariaDB}

// server is the server of one case, or the servers of a quorum. Each is as durable as it
// is by default: Redis answers from its memory, the others write to the disk before.
type server struct {
	addr    string   // what Env.Store is to be
	nodes   []string // of a quorum
	version string   // of Redis
	all     []*testserver.Server
	counts  bool // its counters are read
}

// startServer starts n servers of a store.
func startServer(ctx context.Context, store string, n int, dir string) (_ *server, err error) {
	sv := &server{counts: store == onRedis}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting %s: %w", store, err), sv.stop())
		}
	}()
	for i := range n {
		own := filepath.Join(dir, fmt.Sprint("node", i))
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, err
		}
		one, err := startOne(ctx, store, own)
		if err != nil {
			return nil, err
		}
		sv.all = append(sv.all, one)
		sv.nodes = append(sv.nodes, one.Addr())
	}
	first := sv.all[0]
	sv.addr = first.Addr()
	switch store {
	case onPostgres:
		sv.addr = first.URL()
	case onMariaDB:
		sv.addr = "root@tcp(" + first.Addr() + ")/locks"
	case onRedis:
		sv.version = redisVersion(first)
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

func (sv *server) stop() error {
	var errs []error
	for _, s := range sv.all {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

// counters are those of Redis at one moment, added up over the servers of a quorum.
type counters struct {
	calls map[string]float64 // of each command, be it from a client or from a script
	cpu   float64            // seconds that the main threads have used, also for the network
}

// scripts are the commands that run scripts. No script calls them.
var scripts = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// requests counts what clients have asked for: scripts, and the commands in direct.
// Commands that only scripts call are not requests.
func (c counters) requests(direct []string) (n float64) {
	for _, name := range scripts {
		n += c.calls[name]
	}
	for _, name := range direct {
		n += c.calls[name]
	}
	return n
}

// counters asks the servers. The question itself is none of the commands counted.
func (sv *server) counters() (counters, error) {
	now := counters{calls: map[string]float64{}}
	if !sv.counts {
		return now, nil
	}
	for _, s := range sv.all {
		for _, section := range []string{"commandstats", "cpu"} {
			text, err := s.Ask("INFO", section)
			if err != nil {
				return now, fmt.Errorf("asking the server for its counters: %w", err)
			}
			if err := now.add(text); err != nil {
				return now, err
			}
		}
	}
	return now, nil
}

// add adds the counters of a section of INFO.
func (c *counters) add(text string) error {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		command, known := strings.CutPrefix(name, "cmdstat_")
		switch {
		case known:
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		case !strings.HasPrefix(name, "used_cpu_") || !strings.HasSuffix(name, "_main_thread"):
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("the server said %q: %w", strings.TrimSpace(line), err)
		}
		if known {
			c.calls[command] += n
		} else {
			c.cpu += n
		}
	}
	return nil
}

func redisVersion(s *testserver.Server) string {
	text, err := s.Ask("INFO", "server")
	if err != nil {
		return "unknown"
	}
	_, version, _ := strings.Cut(text, "redis_version:")
	version, _, _ = strings.Cut(version, "\r")
	return version
}
