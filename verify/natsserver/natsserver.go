// Package natsserver starts NATS servers with JetStream inside the process of a test.
package natsserver

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Server is a NATS server that can be started again.
type Server struct {
	options *server.Options
	running *server.Server
}

// URL is where clients connect to.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.options.Port) }

// Start starts a server of its own on a port of its own, which keeps its files in dir.
func Start(dir string, change ...func(*server.Options)) (*Server, error) {
	ports, err := testserver.Ports(1)
	if err != nil {
		return nil, err
	}
	s := &Server{options: &server.Options{
		Host: "127.0.0.1", Port: ports[0], JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	}}
	for _, f := range change {
		f(s.options)
	}
	return s, s.Start()
}

// Start starts the server, also again.
func (s *Server) Start() (err error) {
	options := *s.options
	if s.running, err = server.NewServer(&options); err != nil {
		return err
	}
	s.running.Start()
	if !s.running.ReadyForConnections(time.Minute) {
		s.Stop()
		return errors.New("the server is not ready after a minute")
	}
	return nil
}

// Stop ends the server. Its files stay.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// NoJetStream has a server without JetStream.
func NoJetStream(o *server.Options) { o.JetStream = false }

// Cluster starts n servers that know each other.
func Cluster(dir string, n int) ([]*Server, error) {
	return ClusterThrough(dir, n, func(_, _ int, addr string) (string, error) { return addr, nil })
}

// ClusterThrough is Cluster with servers that know each other by other addresses: through returns the one by which
// server i reaches server j, which listens at addr.
func ClusterThrough(
	dir string, n int, through func(i, j int, addr string) (string, error),
) (all []*Server, err error) {
	ports, err := testserver.Ports(n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		var routes []*url.URL
		for j := range n {
			addr := fmt.Sprintf("127.0.0.1:%d", ports[j])
			if j != i {
				if addr, err = through(i, j, addr); err != nil {
					return all, err
				}
			}
			routes = append(routes, &url.URL{Scheme: "nats", Host: addr})
		}
		s, err := Start(filepath.Join(dir, fmt.Sprint(i)), func(o *server.Options) {
			o.ServerName = fmt.Sprint("n", i)
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i], NoAdvertise: true}
			// Servers tell each other of each other, and a route to what they tell would pass by through. Nobody
			// listens there.
			o.Cluster.Advertise = "127.0.0.1:1"
			o.Routes = routes
		})
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}
