package testserver

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
)

var prometheus = kind{
	name:    "prometheus",
	program: "prometheus",
	install: "on Debian run: apt-get install prometheus; elsewhere see https://prometheus.io/download/",
	prepare: func(s *Server) error { return s.writeConfig("prometheus.yml") },
	args: func(s *Server) []string {
		return []string{
			"--config.file=" + filepath.Join(s.dir, "prometheus.yml"),
			"--storage.tsdb.path=" + filepath.Join(s.dir, "data"),
			"--web.listen-address=" + s.Addr(),
			"--log.level=warn",
		}
	},
	ready: prometheusIsReady,
	url:   func(s *Server) string { return "http://" + s.Addr() },
}

// Prometheus starts a Prometheus for a test. Config is its configuration.
var Prometheus = forTest(always(prometheus))

func prometheusIsReady(ctx context.Context, s *Server) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/-/ready", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/-/ready answers %s", answer.Status)
	}
	return nil
}
