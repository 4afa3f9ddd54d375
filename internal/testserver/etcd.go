package testserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// etcd is not installed from anywhere: it is a small program of ours on etcd's own
// server packages, in verify/etcdserver, and is built before it is first used.

// Etcd starts an etcd of one member for a test. Config adds flags to its command line.
var Etcd = forTest(findEtcd)

// StartEtcd starts an etcd of one member in a folder.
var StartEtcd = inFolder(findEtcd)

func findEtcd() (kind, error) {
	kinds, err := etcdKinds(1)
	if err != nil {
		return kind{}, err
	}
	return kinds[0], nil
}

// EtcdCluster starts an etcd of n members. Their data outlives Kill and Restart.
func EtcdCluster(tb TB, n int, opts ...Option) []*Server {
	tb.Helper()
	kinds, err := etcdKinds(n)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return startTogether(tb, kinds, opts)
}

// etcdKinds are the members of a cluster.
func etcdKinds(n int) ([]kind, error) {
	program, err := etcdProgram()
	if err != nil {
		return nil, err
	}
	ports, err := takePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var members []string
	for i, p := range ports[n:] {
		members = append(members, fmt.Sprintf("member%d=http://127.0.0.1:%d", i, p.number))
	}
	var kinds []kind
	for i, member := range members {
		name, peer, _ := strings.Cut(member, "=")
		kinds = append(kinds, kind{
			name:    "etcd",
			program: program,
			args: func(s *Server) []string {
				client := "http://" + s.Addr()
				return append([]string{
					"--name=" + name, "--data-dir=" + filepath.Join(s.dir, "data"),
					"--initial-cluster=" + strings.Join(members, ","),
					"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
					"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
					"--unsafe-no-fsync", "--log-level=warn",
				}, s.opts.config...)
			},
			ready: etcdIsHealthy,
			url:   func(s *Server) string { return "etcd://" + s.Addr() },
			ports: []*port{ports[i], ports[n+i]},
		})
	}
	return kinds, nil
}

// etcdIsHealthy asks for a read that needs most of the members.
func etcdIsHealthy(ctx context.Context, s *Server) error {
	answer, err := s.exchange(ctx, "GET /health HTTP/1.0\r\n\r\n", io.ReadAll)
	if err == nil && !strings.Contains(answer, `"health":"true"`) {
		err = fmt.Errorf("it is not healthy: %s", answer)
	}
	return err
}

// What a test sets afterwards, such as another HOME, must not cost it Go's caches.
var firstEnviron = os.Environ()

// etcdProgram has Go build the server, and returns its path in Go's cache. That takes a
// minute or more on a new machine. FENCELOCK_ETCD names an etcd to take instead. A program
// that runs where there is no clone takes the etcd of PATH.
var etcdProgram = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("FENCELOCK_ETCD"); program != "" {
		return program, nil
	}
	_, here, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(here), "..", "..", "verify", "etcdserver")
	if _, err := os.Stat(source); err != nil {
		path, err := exec.LookPath("etcd")
		if err != nil {
			return "", &MissingError{"etcd", "see https://etcd.io/docs/latest/install/"}
		}
		return path, nil
	}
	return built(source, ".")
})

// built has Go build the program in a package, and returns its path in Go's cache.
func built(dir, pkg string) (string, error) {
	for range 2 { // a call that links the program names a file that ends with the call
		build := exec.Command("go", "run", "-exec", "echo", pkg)
		build.Env = firstEnviron
		build.Dir = dir
		var errs strings.Builder
		build.Stderr = &errs
		out, err := build.Output()
		if err != nil {
			return "", fmt.Errorf("building the server %s for tests: %w\n%s", pkg, err, errs.String())
		}
		program := strings.TrimSpace(string(out))
		if _, err := os.Stat(program); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("the server %s for tests is not in Go's cache", pkg)
}
