// Package storeurl opens the store of locks that a URL names.
//
//	store, err := storeurl.Open(ctx, os.Getenv("DATABASE_URL"))
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	locks, err := fencelock.New(store.Backend, nil)
//
// It takes the connection strings that other programs have:
//
//	local:                                     a file of SQLite in the user's state directory
//	sqlite:///var/lib/app/locks.db             a file of SQLite
//	redis://:password@host:6379/0              Redis, with the parameters of go-redis
//	rediss://host:6379/0?ca=/etc/ca.pem        Redis with TLS
//	redis+sentinel://host,host/master-name/0   the master that sentinels know; rediss+sentinel with TLS
//	redis+cluster://host,host                  Redis Cluster; rediss+cluster with TLS
//	redlock://host,host,host/0                 a majority of independent Redis servers
//	redlock:redis://a,postgres://u@b/db,…      a majority of different stores
//	postgres://user@host/db?sslmode=disable    PostgreSQL, with the parameters of libpq
//	mysql://user@host/db?timeout=2s            MySQL or MariaDB, with those of go-sql-driver/mysql
//	user:password@tcp(host:3306)/db            the same, as a DSN of go-sql-driver/mysql
//	etcd://host,host/prefix                    etcd; etcds with TLS
//	zk://host,host/root                        ZooKeeper; zks with TLS
//
// With TLS, ca, cert and key name files in PEM form: ?ca=…&cert=…&key=…, or FENCELOCK_CA,
// FENCELOCK_CERT and FENCELOCK_KEY. An unknown parameter is an error that names it.
//
// No error and no String shows a password, however badly it is written into the URL.
//
// Parse takes a URL apart for programs that have flags and settings of their own, as the
// command fencelock does. The package is a module of its own because it imports the client
// library of every store. Each kind of store has a file: backend_redis.go, backend_etcd.go, …
package storeurl
