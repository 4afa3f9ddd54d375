// Command etcdserver is an etcd for tests: one member of a cluster, which may be
// of one. It runs until it is killed, and keeps its data in one folder. Its flags are
// those of etcd itself that tests need.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
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
	flag.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "answer before the disk has it; what a process that is killed wrote is kept all the same")
	flag.StringVar(&cfg.LogLevel, "log-level", "warn", "the `level` of its log")
	flag.Parse()
	cfg.LogOutputs = []string{"stderr"}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.StopNotify():
		return fmt.Errorf("the server stopped")
	case err := <-e.Err():
		return err
	}
}
