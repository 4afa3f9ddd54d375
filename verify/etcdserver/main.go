// Command etcdserver is an etcd for tests: one member of a cluster, which may be
// of one. It runs until it is killed, and keeps its data in one folder.
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
	flag.StringVar(&cfg.Dir, "dir", "", "the `folder` of its data")
	client := flag.String("client", "http://127.0.0.1:2379", "where clients connect, a `URL`")
	peer := flag.String("peer", "http://127.0.0.1:2380", "where other members connect, a `URL`")
	cluster := flag.String("cluster", "", "all members, as `name=peer,name=peer`; itself alone if empty")
	flag.UintVar(&cfg.TickMs, "heartbeat", cfg.TickMs, "between heartbeats of the leader, in `ms`")
	flag.UintVar(&cfg.ElectionMs, "election", cfg.ElectionMs, "without a heartbeat before an election, in `ms`")
	flag.StringVar(&cfg.AutoCompactionRetention, "compact", "0", "keep this many `revisions`, 0 for all")
	flag.Int64Var(&cfg.QuotaBackendBytes, "quota", 0, "the most `bytes` of data, 0 for the default")
	flag.UintVar(&cfg.MaxTxnOps, "max-txn-ops", cfg.MaxTxnOps, "the most `operations` in a transaction")
	fsync := flag.Bool("fsync", false, "write to the disk before answering; what a process that is killed wrote is kept without it too")
	flag.StringVar(&cfg.LogLevel, "log", "warn", "the `level` of its log")
	flag.Parse()

	for _, u := range []struct {
		text string
		to   []*[]url.URL
	}{
		{*client, []*[]url.URL{&cfg.ListenClientUrls, &cfg.AdvertiseClientUrls}},
		{*peer, []*[]url.URL{&cfg.ListenPeerUrls, &cfg.AdvertisePeerUrls}},
	} {
		parsed, err := url.Parse(u.text)
		if err != nil {
			return err
		}
		for _, to := range u.to {
			*to = []url.URL{*parsed}
		}
	}
	cfg.InitialCluster = *cluster
	if *cluster == "" {
		cfg.InitialCluster = cfg.Name + "=" + *peer
	}
	cfg.AutoCompactionMode = "revision"
	cfg.UnsafeNoFsync = !*fsync
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
