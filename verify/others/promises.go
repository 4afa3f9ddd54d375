package others

import "strings"

// promise is what a documentation says of some schedules, in our words.
type promise struct {
	schedules  string // their names, by spaces
	text, link string
}

// promised is what the documentation of a library says of a schedule, as Markdown.
func (l library) promised(schedule string) string {
	for _, p := range promises[l.name] {
		if strings.Contains(" "+p.schedules+" ", " "+schedule+" ") {
			return p.text + " ([source](" + p.link + "))"
		}
	}
	return "we found nothing"
}

const (
	guarantees  = "../../docs/guarantees.md"
	redsyncDoc  = "https://pkg.go.dev/github.com/go-redsync/redsync/v4@v4.18.0"
	bsmDoc      = "https://pkg.go.dev/github.com/bsm/redislock@v0.9.4"
	rueidisDoc  = "https://pkg.go.dev/github.com/redis/rueidis@v1.0.79/rueidislock"
	redisPyDoc  = "https://redis.readthedocs.io/en/stable/lock.html"
	redlockDoc  = "https://github.com/mike-marcacci/node-redlock#usage"
	semaphore   = "https://github.com/swarthy/redis-semaphore#mutex"
	symfonyDoc  = "https://symfony.com/doc/6.4/components/lock.html"
	etcdDoc     = "https://pkg.go.dev/go.etcd.io/etcd/client/v3@v3.7.3/concurrency"
	zkDoc       = "https://pkg.go.dev/github.com/go-zookeeper/zk@v1.0.4#Lock"
	kazooStates = "https://kazoo.readthedocs.io/en/latest/api/client.html"
	curatorDoc  = "https://curator.apache.org/docs/recipes-shared-reentrant-lock"
	advisoryDoc = "https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS"
	getLockDoc  = "https://mariadb.com/kb/en/get_lock/"
)

// ours are the promises of fencelock on each store.
func ours(more ...promise) []promise {
	return append(more,
		promise{"kill", "the next one in line is in when the lease is over", guarantees},
		promise{
			"stop cut",
			"the holder's context ends at its deadline at the latest, and a late holder has a smaller token",
			guarantees,
		},
		promise{"outlive", "the lease is renewed while the process runs", guarantees},
		promise{"restart", "claims stay, as the store keeps what it acknowledged", guarantees},
		promise{"order", "order of arrival, and tokens rise", guarantees},
		promise{
			"ghosts",
			"a killed waiter delays nobody beyond its lease; a call of unknown outcome is taken back in the " +
				"background",
			guarantees,
		})
}

var promises = map[string][]promise{
	"fencelock on Redis": ours(promise{"amnesia failover",
		"claims are lost, a second holder may be granted, and the first learns of the loss", guarantees}),
	"fencelock on etcd":       ours(),
	"fencelock on ZooKeeper":  ours(),
	"fencelock on PostgreSQL": ours(),
	"fencelock on MariaDB":    ours(),

	"redsync": {
		{"kill", "the lock expires after `WithExpiry`", redsyncDoc + "#WithExpiry"},
		{
			"stop cut outlive",
			"nobody else gets the lock until it is unlocked, says the README; it expires, and the program " +
				"may call `Valid` and `Extend`, says the reference",
			redsyncDoc,
		},
	},
	"bsm/redislock": {
		{"kill", "the lock has a TTL", bsmDoc + "#Client.Obtain"},
		{"stop cut outlive", "the lock expires after its TTL unless the program calls `Refresh`", bsmDoc},
	},
	"rueidislock": {
		{"kill", "a lock is valid for `KeyValidity`", rueidisDoc},
		{
			"stop cut amnesia failover",
			"the context ends at once when the majority of keys is not held any more, or Redis is down",
			rueidisDoc,
		},
		{"outlive", "the lock is extended periodically", rueidisDoc},
		{"order", "who waits tries again as soon as the lock is released", rueidisDoc},
	},
	"redis-py": {
		{"kill", "`timeout` is the maximum life of the lock", redisPyDoc},
		{
			"stop cut outlive",
			"the lock expires after `timeout` and another may have it; the token keeps `release` from " +
				"freeing that one's lock",
			redisPyDoc,
		},
	},
	"redlock (node)": {
		{"kill", "the lock has a duration", redlockDoc},
		{"stop cut", "a signal tells when the extension fails, and the routine has to look at it", redlockDoc},
		{"outlive", "`using` extends the lock by itself", redlockDoc},
		{
			"failover",
			"on one Redis whose replica is promoted without the lock, it may be acquired twice; several " +
				"independent ones avoid that",
			"https://github.com/mike-marcacci/node-redlock#faq",
		},
	},
	"redis-semaphore": {
		{"kill", "the mutex is released after `lockTimeout`", semaphore},
		{"stop cut amnesia failover", "`onLockLost` is called when a refresh detects the loss", semaphore},
		{"outlive", "it is refreshed after four fifths of `lockTimeout`", semaphore},
	},
	"Symfony Lock": {
		{"kill", "a TTL avoids stalled locks", symfonyDoc + "#redisstore"},
		{
			"stop cut outlive",
			"the lock is held for its lifetime only, then another may have it; the program may call " +
				"`isExpired` and `refresh`",
			symfonyDoc + "#expiring-stores",
		},
		{
			"amnesia failover",
			"all locks are lost and nobody is told; start the service later by the longest TTL",
			symfonyDoc + "#redisstore",
		},
		{"restart", "Redis can be told to keep what it holds, which makes it slower", symfonyDoc + "#redisstore"},
		{"ghosts", "a TTL avoids stalled locks", symfonyDoc + "#redisstore"},
	},
	"etcd concurrency": {
		{"kill outlive", "the lease is kept alive as long as the client lives", etcdDoc + "#Session"},
		{
			"stop cut",
			"`Session.Done` is closed when the lease expires; a lease alone does not exclude, so compare the " +
				"revision",
			"https://etcd.io/docs/v3.6/learning/why/#notes-on-the-usage-of-lock-and-lease",
		},
		{"ghosts", "`Lock` tries to remove its key when its context ends", etcdDoc + "#Mutex.Lock"},
	},
	"zk.Lock": {
		{"ghosts", "`Lock` waits until it has the lock, or there is an error", zkDoc},
	},
	"kazoo": {
		{
			"stop cut restart",
			"while the connection is suspended, do not assume that locks are valid; when it is lost, they " +
				"are lost",
			kazooStates,
		},
	},
	"Curator": {
		{
			"stop cut restart",
			"no two clients think that they have the lock at any time; watch for SUSPENDED, after which one " +
				"cannot be certain",
			curatorDoc,
		},
		{"order", "in the order of requests, as ZooKeeper sees them", curatorDoc},
	},
	"pg_advisory_lock": {
		{"kill stop cut outlive", "held until it is released or the session ends", advisoryDoc},
		{"restart", "it ends with the session", advisoryDoc},
		{"ghosts", "it ends with the session", advisoryDoc},
	},
	"GET_LOCK": {
		{"kill stop cut outlive", "held until it is released or the connection ends", getLockDoc},
		{"restart ghosts", "it ends with the connection", getLockDoc},
	},
}
