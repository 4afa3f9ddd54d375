package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// natsServer is not installed from anywhere: Go builds it before it is first used.
const natsServer = "github.com/nats-io/nats-server/v2@v2.15.2"

// NATS starts a NATS server with JetStream for a test.
var NATS = forTest(func() (kind, error) {
	kinds, err := natsKinds(1)
	if err != nil {
		return kind{}, err
	}
	return kinds[0], nil
})

// NATSCluster starts n NATS servers that know each other. Their data outlives Kill and Restart.
func NATSCluster(tb TB, n int, opts ...Option) []*Server {
	tb.Helper()
	kinds, err := natsKinds(n)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return startTogether(tb, kinds, opts)
}

var natsProgram = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("FENCELOCK_NATS"); program != "" {
		return program, nil
	}
	return built(os.TempDir(), natsServer)
})

// natsKinds are the servers of a cluster. Clients hear of no address but those that they are given.
func natsKinds(n int) ([]kind, error) {
	program, err := natsProgram()
	if err != nil {
		return nil, err
	}
	ports, err := takePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, p := range ports[n:] {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p.number))
	}
	var kinds []kind
	for i, route := range routes {
		kinds = append(kinds, kind{
			name:    "nats",
			program: program,
			args: func(s *Server) []string {
				args := []string{
					"-a", "127.0.0.1", "-p", fmt.Sprint(ports[i].number), "-js", "-sd", filepath.Join(s.dir, "data"),
					"--name", fmt.Sprint("server", i),
				}
				if n > 1 {
					args = append(args, "--cluster_name", "test", "--cluster", route, "--no_advertise",
						"--routes", strings.Join(routes, ","))
				}
				return append(args, s.opts.config...)
			},
			ready: func(ctx context.Context, s *Server) error {
				answer, err := s.exchange(ctx, "", beginning)
				if err == nil && !strings.HasPrefix(answer, "INFO ") {
					err = fmt.Errorf("it does not serve: %s", answer)
				}
				return err
			},
			url:   func(s *Server) string { return "nats://" + s.Addr() },
			ports: []*port{ports[i], ports[n+i]},
		})
	}
	return kinds, nil
}
