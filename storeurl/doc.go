// Package storeurl reads the URLs that name a store of locks, and opens the store.
//
// The command fencelock and the programs of module verify share it, so a URL means the
// same to all of them. Each scheme has a file: backend_redis.go, backend_etcd.go, …
//
//	u, err := storeurl.Parse("redis://host:6379/0", storeurl.Source{Name: "--url"})
//	store, err := u.Open(ctx, storeurl.Config{})
//	err = store.Ping(ctx)
//
// No error and no String shows a password, however badly it is written into the URL.
//
// It is a module of its own because it imports the client library of every store, and
// the root module imports the standard library alone.
package storeurl
