package others

import "path/filepath"

// library is a lock under test.
type library struct {
	name, home string // home is the address of its documentation
	store      string // the name in stores
	adapter    []string
	use        string // how it is used
	endless    bool   // a call that waits cannot give up
	ours       bool
}

// goAdapter, and the others, are the command lines of adapters, with dir for the folder verify.
func goAdapter(name string) []string { return []string{"{self}", "adapter", name, "{ttl}"} }
func python(name string) []string {
	return []string{"/usr/bin/python3", "{dir}/locks.py", name, "{ttl}"}
}
func node(name string) []string        { return []string{"node", "{dir}/node/locks.mjs", name, "{ttl}"} }
func adapterDir(verify string) string  { return filepath.Join(verify, "others", "adapters") }
func resultsFile(verify string) string { return filepath.Join(verify, "others", "results.jsonl") }

var symfony = []string{"php", "{dir}/symfony.php", "symfony", "{ttl}"}

var curator = []string{"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", "/usr/share/java/*",
	"{dir}/Curator.java", "curator", "{ttl}"}

var libraries = []library{
	{name: "fencelock on Redis", store: "redis", adapter: goAdapter("fencelock-redis"), ours: true,
		use: "`Client.Lock`"},
	{name: "redsync", store: "redis", adapter: goAdapter("redsync"), home: "https://github.com/go-redsync/redsync",
		use: "`Mutex.LockContext`, one Redis"},
	{name: "bsm/redislock", store: "redis", adapter: goAdapter("bsm"), home: "https://github.com/bsm/redislock",
		use: "`Client.Obtain` with `LinearBackoff` of 100 ms"},
	{name: "rueidislock", store: "redis", adapter: goAdapter("rueidislock"),
		home: "https://github.com/redis/rueidis/tree/main/rueidislock",
		use:  "`Locker.WithContext`, one key, `NoLoopTracking`, `TryNextAfter` of one lease"},
	{name: "redis-py", store: "redis", adapter: python("redis-py"),
		home: "https://redis.readthedocs.io/en/stable/lock.html", use: "`Redis.lock` with a timeout"},
	{name: "redlock (node)", store: "redis", adapter: node("redlock"),
		home: "https://github.com/mike-marcacci/node-redlock",
		use:  "`Redlock.using` of the version that its README describes, one Redis"},
	{name: "redis-semaphore", store: "redis", adapter: node("redis-semaphore"),
		home: "https://github.com/swarthy/redis-semaphore", use: "`Mutex` with `onLockLost`"},
	{name: "Symfony Lock", store: "redis", adapter: symfony,
		home: "https://symfony.com/doc/current/components/lock.html", use: "`RedisStore`, `acquire(true)`"},

	{name: "fencelock on etcd", store: "etcd", adapter: goAdapter("fencelock-etcd"), ours: true, use: "`Client.Lock`"},
	{name: "etcd concurrency", store: "etcd", adapter: goAdapter("etcd-concurrency"),
		home: "https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency",
		use:  "a `Session` and a `Mutex` for each lock"},

	{name: "fencelock on ZooKeeper", store: "zookeeper", adapter: goAdapter("fencelock-zookeeper"), ours: true,
		use: "`Client.Lock`"},
	{name: "zk.Lock", store: "zookeeper", adapter: goAdapter("zk"), endless: true,
		home: "https://pkg.go.dev/github.com/go-zookeeper/zk", use: "`NewLock`, beside it the connection's events"},
	{name: "kazoo", store: "zookeeper", adapter: python("kazoo"),
		home: "https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html",
		use:  "`KazooClient.Lock` and a state listener"},
	{name: "Curator", store: "zookeeper", adapter: curator,
		home: "https://curator.apache.org/docs/recipes-shared-reentrant-lock",
		use:  "`InterProcessMutex` and a `ConnectionStateListener`"},

	{name: "fencelock on PostgreSQL", store: "postgres", adapter: goAdapter("fencelock-postgres"), ours: true,
		use: "`Client.Lock`"},
	{name: "pg_advisory_lock", store: "postgres", adapter: goAdapter("pg_advisory_lock"),
		home: "https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS",
		use:  "in a session of its own, through pgx"},

	{name: "fencelock on MariaDB", store: "mariadb", adapter: goAdapter("fencelock-mariadb"), ours: true,
		use: "`Client.Lock`"},
	{name: "GET_LOCK", store: "mariadb", adapter: goAdapter("get_lock"), home: "https://mariadb.com/kb/en/get_lock/",
		use: "in a session of its own, through go-sql-driver/mysql"},
}
