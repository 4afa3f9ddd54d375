// Command etcdserver is an etcd for tests.
package main

import "go.etcd.io/etcd/server/v3/embed"

func main() { _ = embed.NewConfig() }
