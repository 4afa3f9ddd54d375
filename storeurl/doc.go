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
//	redlock://host,host,host?durable=true      with what its members have agreed on: durable, quarantine, skew
//	redlock:redis://u@a,rediss://b,…           a majority of servers that differ in more than their hosts
//	bridge:redis://host,postgres://host/db     each lock in both stores, while programs move: see package bridge
//	bridge:redis://host?format=setnx,etcd://h  the old store has the locks of another library
//	unix:///run/redis.sock?db=0                Redis on a Unix socket
//	postgres://user@host/db?sslmode=disable    PostgreSQL, with the parameters of libpq
//	postgres://user@host1,host2/db             the one of several PostgreSQL servers that takes writes
//	postgres:///db?host=/run/postgresql        PostgreSQL on a Unix socket
//	mysql://user@host/db?timeout=2s            MySQL or MariaDB, with those of go-sql-driver/mysql
//	mysql://user@/db?socket=/run/mysqld.sock   the same on a Unix socket
//	user:password@tcp(host:3306)/db            the same, as a DSN of go-sql-driver/mysql; unix(path) too
//	etcd://host,host/prefix                    etcd; etcds with TLS
//	nats://host,host/bucket?creds=FILE         NATS JetStream; natss with TLS
//	zk://host,host/root                        ZooKeeper; zks with TLS
//	s3://bucket/prefix?region=eu-west-1        a bucket of S3, with the credentials that the AWS CLI takes
//	s3://bucket?endpoint=https://host:9000     a bucket of another server of S3; poll=500ms for its waiters
//
// With TLS, ca, cert and key name files in PEM form: ?ca=…&cert=…&key=…, or FENCELOCK_CA,
// FENCELOCK_CERT and FENCELOCK_KEY. An unknown parameter is an error that names it.
//
// Parameters by which other programs size their pools, and schema of Prisma, are ignored: locks
// are where the server's search_path leads. sslmode=no-verify of node-postgres is
// sslmode=require. Other parameters of those programs are refused with what to write instead.
//
// Blanks, line ends, a byte order mark and one pair of quotes around a URL, around a variable of
// the environment and around the value of a file are not part of it.
//
// No error and no String shows a password, however badly it is written into the URL.
//
// Parse takes a URL apart for programs that have flags and settings of their own, as the
// command fencelock does. The package is a module of its own because it imports the client
// library of every store. Each kind of store has a file: backend_redis.go, backend_etcd.go, …
package storeurl
