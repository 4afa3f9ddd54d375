// Command etcdserver is an etcd for tests: one member of a cluster, which may be
// of one. It runs until it is killed, and keeps its data in one folder. Its flags are
// those of etcd itself that tests need.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/url"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	flag.StringVar(&cfg.Name, "name", "one", "the member's `name`")
	flag.StringVar(&cfg.Dir, "data-dir", "", "the `folder` of its data")
	urls := map[string]*[]url.URL{
		"listen-client-urls": &cfg.ListenClientUrls, "advertise-client-urls": &cfg.AdvertiseClientUrls,
		"listen-peer-urls": &cfg.ListenPeerUrls, "initial-advertise-peer-urls": &cfg.AdvertisePeerUrls,
	}
	for name, to := range urls {
		flag.Func(name, "where others connect, a `URL`", func(text string) error {
			u, err := url.Parse(text)
			if err == nil {
				*to = []url.URL{*u}
			}
			return err
		})
	}
	flag.StringVar(&cfg.InitialCluster, "initial-cluster", "", "all members, as `name=peer,name=peer`")
	flag.UintVar(&cfg.ElectionMs, "election-timeout", cfg.ElectionMs, "without a heartbeat before an election, in `ms`")
	flag.Int64Var(&cfg.QuotaBackendBytes, "quota-backend-bytes", 0, "the most `bytes` of data, 0 for the default")
	flag.UintVar(&cfg.MaxTxnOps, "max-txn-ops", cfg.MaxTxnOps, "the most `operations` in a transaction")
	flag.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false,
		"answer before the disk has it; what a process that is killed wrote is kept all the same")
	flag.UintVar(&cfg.BcryptCost, "bcrypt-cost", cfg.BcryptCost, "how slow a login is, the `cost` of bcrypt")
	flag.StringVar(&cfg.LogLevel, "log-level", "warn", "the `level` of its log")
	oldLogins := flag.Bool("old-logins", false, "refuse a login that carries an unknown token, as etcd before 3.5 does")
	flag.Parse()
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
