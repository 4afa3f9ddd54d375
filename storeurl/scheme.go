package storeurl

import (
	"context"
	"net/url"
)

// scheme is a kind of store.
type scheme struct {
	name    string // before the colon
	form    string // how to write it, for people
	server  bool   // it has an address and may ask for a password
	private bool   // nobody outside this process sees its locks
	tls     bool   // ca, cert and key have a meaning
	users   bool   // a password belongs to a user

	// check reads the rest of the URL into Host and Path, and sets the text for people.
	check func(u *URL, rest *url.URL) error
	// open opens the store, and asks nobody whether it is there.
	open func(ctx context.Context, u *URL, c *Config) (*Store, error)
}

// schemes are all kinds of stores. A new one is a file with two functions, and a line here.
func schemes() []scheme {
	redis := scheme{check: checkRedis, open: openRedis, server: true}
	sentinel := scheme{check: checkSentinel, open: openSentinel, server: true}
	cluster := scheme{check: checkCluster, open: openCluster, server: true}
	postgres := scheme{check: checkPostgres, open: openPostgres, server: true, tls: true}
	mysql := scheme{check: checkMySQL, open: openMySQL, server: true, tls: true}
	etcd := scheme{check: checkEtcd, open: openEtcd, server: true, users: true}
	nats := scheme{check: checkNATS, open: openNATS, server: true}
	zookeeper := scheme{check: checkZooKeeper, open: openZooKeeper, server: true, users: true}
	return []scheme{
		scheme{check: checkLocal, open: openSQLite}.as("local", ""),
		scheme{check: checkMemory, open: openMemory, private: true}.as("memory", ""),
		scheme{check: checkSQLite, open: openSQLite}.as("sqlite", "///path"),
		redis.as("redis", "//host:port/db"),
		redis.withTLS().as("rediss", "//host:port/db"),
		sentinel.as("redis+sentinel", "//host:port,host:port/master-name/db"),
		sentinel.withTLS().as("rediss+sentinel", "//host:port,host:port/master-name/db"),
		cluster.as("redis+cluster", "//host:port,host:port"),
		cluster.withTLS().as("rediss+cluster", "//host:port,host:port"),
		scheme{check: checkQuorum, open: openQuorum, server: true}.as("redlock", "//host:port,host:port,host:port/db"),
		scheme{check: checkBridge, open: openBridge, server: true}.as("bridge", "OLD,NEW"),
		postgres.as("postgres", "//user@host:port/db"),
		postgres.as("postgresql", "//user@host:port/db"),
		mysql.as("mysql", "//user@host:port/db"),
		mysql.as("mariadb", "//user@host:port/db"),
		etcd.as("etcd", "//host:port,host:port/prefix"),
		etcd.withTLS().as("etcds", "//host:port,host:port/prefix"),
		scheme{check: checkS3, open: openS3, server: true}.as("s3", "//bucket/prefix"),
		nats.as("nats", "//host:port,host:port/bucket"),
		nats.withTLS().as("natss", "//host:port,host:port/bucket"),
		zookeeper.as("zk", "//host:port,host:port/root"),
		zookeeper.withTLS().as("zks", "//host:port,host:port/root"),
	}
}

func (s scheme) withTLS() scheme {
	s.tls = true
	return s
}

// as returns s under a name. rest is what follows the colon.
func (s scheme) as(name, rest string) scheme {
	s.name, s.form = name, name+":"+rest
	return s
}

func find(name string) *scheme {
	for _, s := range schemes() {
		if s.name == name {
			return &s
		}
	}
	return nil
}

// Schemes are the names of all schemes.
func Schemes() []string {
	var names []string
	for _, s := range schemes() {
		names = append(names, s.name)
	}
	return names
}
