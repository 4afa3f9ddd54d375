package bench

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Where the libraries of a case keep their locks.
const (
	onRedis     = "Redis"
	onEtcd      = "etcd"
	onZooKeeper = "ZooKeeper"
	onPostgres  = "PostgreSQL"
	onMariaDB   = "MariaDB"
	nowhere     = "" // the case starts its servers itself
)

// place is a server that was started for some cases. Each is as durable as it is by
// default: Redis answers from its memory, the others write to the disk before.
type place struct {
	store   string
	addr    string   // what Env.Store is to be
	nodes   []string // of a quorum
	version string
	read    func() (stats, error)
	stop    func() error
}

func startPlace(ctx context.Context, store, dir string) (*place, error) {
	p := &place{store: store, read: uncounted, stop: func() error { return nil }}
	var s *testserver.Server
	var err error
	switch store {
	case onRedis:
		if s, err = testserver.StartRedis(ctx, dir); err == nil {
			p.addr, p.version, p.read = s.Addr(), redisVersion(s), func() (stats, error) { return readRedis(s) }
		}
	case onEtcd:
		synced := testserver.Config("--unsafe-no-fsync=false")
		if s, err = testserver.StartEtcd(ctx, dir, testserver.Persist(true), synced); err == nil {
			p.addr, p.read = s.Addr(), func() (stats, error) { return readEtcd(s.Addr()) }
		}
	case onZooKeeper:
		synced := testserver.Config("forceSync=yes")
		if s, err = testserver.StartZooKeeper(ctx, dir, testserver.Persist(true), synced); err == nil {
			p.addr, p.read = s.Addr(), func() (stats, error) { return readZooKeeper(s.Addr()) }
			p.version = zooKeeperVersion(s.Addr())
		}
	case onPostgres:
		if s, err = testserver.StartPostgres(ctx, dir, testserver.Config("fsync = on")); err == nil {
			p.addr, p.version = s.URL(), askSQL("pgx", s.URL(), "SHOW server_version")
		}
	case onMariaDB:
		synced := testserver.Config("innodb_flush_log_at_trx_commit=1")
		if s, err = testserver.StartMariaDB(ctx, dir, synced); err == nil {
			p.addr = "root@tcp(" + s.Addr() + ")/locks"
			p.version = askSQL("mysql", p.addr, "SELECT VERSION()")
			p.read = func() (stats, error) { return readMariaDB(p.addr) }
		}
	case nowhere:
	default:
		return nil, fmt.Errorf("nobody knows how to start %q", store)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", store, err)
	}
	if s != nil {
		p.stop = s.Stop
	}
	return p, nil
}

// startQuorum starts n independent Redis servers.
func startQuorum(ctx context.Context, dir string, n int) (*place, error) {
	p := &place{store: "quorum", read: uncounted}
	var servers []*testserver.Server
	p.stop = func() error {
		var errs []error
		for _, s := range servers {
			errs = append(errs, s.Stop())
		}
		return errors.Join(errs...)
	}
	for i := range n {
		own := filepath.Join(dir, fmt.Sprint("node", i))
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, errors.Join(err, p.stop())
		}
		s, err := testserver.StartRedis(ctx, own)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		servers = append(servers, s)
		p.nodes = append(p.nodes, s.Addr())
	}
	p.read = func() (stats, error) {
		all := stats{calls: map[string]int64{}}
		for _, s := range servers {
			one, err := readRedis(s)
			if err != nil {
				return all, err
			}
			all.cpu += one.cpu
			for name, n := range one.calls {
				all.calls[name] += n
			}
		}
		return all, nil
	}
	return p, nil
}

// stats are the counters of a server at one moment.
type stats struct {
	calls map[string]int64 // Redis: of each command, be it by a client or by a script
	other float64          // other servers: requests, as they count them
	cpu   float64          // Redis: seconds that its main thread has used, also for the network
	none  bool             // it does not count
}

// asked is what clients have cost the server between two moments.
type asked struct {
	counted  bool
	requests float64
	cpu      float64 // seconds; 0 if it is not known
}

// scripts are the commands that run scripts. No script calls them.
var scripts = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// since says what clients have asked for: of Redis scripts, and the commands in direct.
// What scripts call is in neither.
func (s stats) since(before stats, direct []string) asked {
	a := asked{cpu: s.cpu - before.cpu, requests: s.other - before.other, counted: !s.none}
	for _, names := range [][]string{scripts, direct} {
		for _, name := range names {
			a.requests += float64(s.calls[name] - before.calls[name])
		}
	}
	return a
}

func uncounted() (stats, error) { return stats{none: true}, nil }

// readRedis asks the server. Its own question is none of the commands counted.
func readRedis(s *testserver.Server) (stats, error) {
	now := stats{calls: map[string]int64{}}
	for _, section := range []string{"commandstats", "cpu"} {
		text, err := s.Ask("INFO", section)
		if err != nil {
			return now, fmt.Errorf("asking the server for its counters: %w", err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			command, known := strings.CutPrefix(name, "cmdstat_")
			switch {
			case known:
				calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
				now.calls[command], err = strconv.ParseInt(calls, 10, 64)
			case strings.HasPrefix(name, "used_cpu_") && strings.HasSuffix(name, "_main_thread"):
				var part float64
				part, err = strconv.ParseFloat(value, 64)
				now.cpu += part
			}
			if err != nil {
				return now, fmt.Errorf("the server said %q: %w", strings.TrimSpace(line), err)
			}
		}
	}
	return now, nil
}

// redisVersion is what the server says of itself.
func redisVersion(s *testserver.Server) string {
	text, err := s.Ask("INFO", "server")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return v
		}
	}
	return "unknown"
}

// readEtcd counts the messages that the server has received, those of streams too.
func readEtcd(addr string) (stats, error) {
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return stats{}, err
	}
	defer answer.Body.Close()
	return countEtcd(answer.Body)
}

func countEtcd(text io.Reader) (s stats, err error) {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "grpc_server_msg_received_total{") {
			continue
		}
		_, value, _ := strings.Cut(lines.Text(), "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return s, fmt.Errorf("the server said %q: %w", lines.Text(), err)
		}
		s.other += n
	}
	return s, lines.Err()
}

// readZooKeeper counts the packets that the server has received.
func readZooKeeper(addr string) (stats, error) {
	text, err := fourLetters(addr, "srvr")
	if err != nil {
		return stats{}, err
	}
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "Received: "); ok {
			received, err := strconv.ParseFloat(n, 64)
			return stats{other: received}, err
		}
	}
	return stats{}, fmt.Errorf("ZooKeeper does not say what it has received: %q", text)
}

func zooKeeperVersion(addr string) string {
	text, err := fourLetters(addr, "srvr")
	if err != nil {
		return "unknown"
	}
	v, _, _ := strings.Cut(strings.TrimPrefix(text, "Zookeeper version: "), "-")
	v, _, _ = strings.Cut(v, "\n")
	return v
}

func fourLetters(addr, word string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	var text bytes.Buffer
	_, err = io.Copy(&text, c)
	return text.String(), err
}

// readMariaDB counts the statements that clients have had run, and its own.
func readMariaDB(dsn string) (stats, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return stats{}, err
	}
	defer db.Close()
	var name string
	var s stats
	err = db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &s.other)
	return s, err
}

func askSQL(driver, dsn, question string) string {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "unknown"
	}
	defer db.Close()
	answer := "unknown"
	_ = db.QueryRow(question).Scan(&answer)
	answer, _, _ = strings.Cut(answer, " ")
	return answer
}
