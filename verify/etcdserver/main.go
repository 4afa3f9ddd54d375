// Command etcdserver is an etcd for tests: one member of a cluster, which may be
// of one. It runs until it is killed. Its flags are those of etcd itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/url"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	cfg := embed.NewConfig()
	cfg.AddFlags(flag.CommandLine)
	flag.StringVar(&cfg.ClusterState, "initial-cluster-state", cfg.ClusterState, "new or existing")
	oldLogins := flag.Bool("old-logins", false, "refuse a login that carries an unknown token, as etcd before 3.5 does")
	flag.Parse()
	for name, to := range map[string]*[]url.URL{
		"listen-client-urls": &cfg.ListenClientUrls, "advertise-client-urls": &cfg.AdvertiseClientUrls,
		"listen-peer-urls": &cfg.ListenPeerUrls, "initial-advertise-peer-urls": &cfg.AdvertisePeerUrls,
	} {
		*to = flags.UniqueURLsFromFlag(flag.CommandLine, name)
	}
	cfg.LogOutputs = []string{"stderr"}
	var logins tokenCheck
	if *oldLogins {
		cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(logins.intercept)}
	}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	logins.server.Store(e.Server)
	select {
	case <-e.Server.StopNotify():
		return fmt.Errorf("the server stopped")
	case err := <-e.Err():
		return err
	}
}

// tokenCheck applies to logins the check of tokens that all other requests go through.
// Servers before etcd 3.5 apply it to logins too.
type tokenCheck struct {
	server atomic.Pointer[etcdserver.EtcdServer]
}

func (c *tokenCheck) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler,
) (any, error) {
	if info.FullMethod == "/etcdserverpb.Auth/Authenticate" {
		server := c.server.Load()
		if server == nil {
			return nil, rpctypes.ErrGRPCStopped
		}
		if _, err := server.AuthStore().AuthInfoFromCtx(ctx); err != nil {
			return nil, rpctypes.ErrGRPCInvalidAuthToken
		}
	}
	return serve(ctx, request)
}
