package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// etcd is not installed from anywhere: it is a small program of ours on etcd's own
// server packages, in verify/etcdserver, and is built before it is first used.

// Etcd starts an etcd of one member for a test and stops it when the test ends.
// Config adds flags to its command line.
func Etcd(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := StartEtcd(context.Background(), tb.TempDir(), opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return attach(tb, s)
}

// StartEtcd starts an etcd of one member in dir. The caller stops it.
func StartEtcd(ctx context.Context, dir string, opts ...Option) (*Server, error) {
	program, err := etcdProgram(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := takePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, etcdKind(program, "one", peer, ""), dir, opts)
}

// EtcdCluster starts an etcd of n members. Their data outlives Kill and Restart.
func EtcdCluster(tb TB, n int, opts ...Option) []*Server {
	tb.Helper()
	program, err := etcdProgram(context.Background())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	ss, err := startEtcdCluster(program, n, tb.TempDir, opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	for _, s := range ss {
		attach(tb, s)
	}
	return ss
}

func startEtcdCluster(program string, n int, dir func() string, opts []Option) ([]*Server, error) {
	peers, err := takePorts(n)
	if err != nil {
		return nil, err
	}
	var members []string
	for i, p := range peers {
		members = append(members, fmt.Sprintf("member%d=http://127.0.0.1:%d", i, p.number))
	}
	ss, errs := make([]*Server, n), make([]error, n)
	var group sync.WaitGroup // none of them answers before most of them run
	for i := range ss {
		k := etcdKind(program, fmt.Sprintf("member%d", i), peers[i], strings.Join(members, ","))
		folder := dir()
		group.Go(func() {
			ss[i], errs[i] = start(context.Background(), k, folder, append([]Option{Persist(true)}, opts...))
		})
	}
	group.Wait()
	err = errors.Join(errs...)
	if err == nil {
		return ss, nil
	}
	for _, s := range ss {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	return nil, err
}

func etcdKind(program, name string, peer *port, cluster string) kind {
	return kind{
		name:    "etcd",
		program: program,
		prepare: func(s *Server) error {
			if s.opts.persist {
				return nil
			}
			return os.RemoveAll(filepath.Join(s.dir, "data"))
		},
		args: func(s *Server) []string {
			members, address, client := cluster, fmt.Sprintf("http://127.0.0.1:%d", peer.number), "http://"+s.Addr()
			if members == "" {
				members = name + "=" + address
			}
			return append([]string{
				"--name=" + name, "--data-dir=" + filepath.Join(s.dir, "data"), "--initial-cluster=" + members,
				"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
				"--listen-peer-urls=" + address, "--initial-advertise-peer-urls=" + address,
				"--unsafe-no-fsync", "--log-level=warn",
			}, s.opts.config...)
		},
		ready: etcdIsHealthy,
		url:   func(s *Server) string { return "etcd://" + s.Addr() },
		ports: []*port{peer},
	}
}

// etcdIsHealthy asks for a read that needs most of the members.
func etcdIsHealthy(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/health", nil)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var health struct{ Health, Reason string }
	if err := json.NewDecoder(answer.Body).Decode(&health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("it is not healthy: %s", health.Reason)
	}
	return nil
}

// What a test sets afterwards, such as another HOME, must not cost it Go's caches.
var (
	firstEnviron      = os.Environ()
	firstCache, noDir = os.UserCacheDir()
)

var etcdBuild struct {
	sync.Mutex
	program string
}

// etcdProgram builds the server if nobody has built it from the same sources yet,
// and returns its path. That takes a minute or more on a new machine, and seconds
// where Go's build cache knows its packages. FENCELOCK_ETCD names an etcd to take instead.
func etcdProgram(ctx context.Context) (string, error) {
	if program := os.Getenv("FENCELOCK_ETCD"); program != "" {
		return program, nil
	}
	etcdBuild.Lock()
	defer etcdBuild.Unlock()
	if etcdBuild.program != "" {
		return etcdBuild.program, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.work", "verify/go.mod", "verify/go.sum", "verify/etcdserver/main.go"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	cache := firstCache
	if noDir != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	cache = filepath.Join(cache, "fencelock-testserver")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	program := filepath.Join(cache, fmt.Sprintf("etcdserver-%x", sum.Sum(nil)[:8]))
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		// Another process may be building it too: each has a file of its own first.
		mine := fmt.Sprintf("%s.%d", program, os.Getpid())
		build := exec.CommandContext(ctx, "go", "build", "-o", mine, ".")
		build.Env = firstEnviron
		build.Dir = filepath.Join(root, "verify", "etcdserver")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building the etcd server for tests: %w\n%s", err, out)
		}
		if err := os.Rename(mine, program); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	etcdBuild.program = program
	return program, nil
}

// repositoryRoot is the folder above the working folder that has a go.work.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("the etcd server for tests is built from the repository's sources, and %s is not inside of it", dir)
		}
	}
}
