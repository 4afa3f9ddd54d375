package storeurl

import (
	"context"
	"net/url"
	"strings"
)

// scheme is a kind of store.
type scheme struct {
	name    string // before the colon
	form    string // how to write it, for people
	server  bool   // it has an address and may ask for a password
	private bool   // nobody outside this process sees its locks
	member  bool   // a quorum may have it as a member

	// check reads the rest of the URL into Host and Path, and sets the text for people.
	check func(u *URL, rest *url.URL) error
	// open opens the store, and asks nobody whether it is there.
	open func(ctx context.Context, u *URL, c *Config) (*Store, error)
}

// schemes are all kinds of stores. A new one is a file with two functions, and a line here.
func schemes() []scheme {
	return []scheme{
		{name: "local", form: "local:", check: checkLocal, open: openSQLite},
		{name: "memory", form: "memory:", check: checkMemory, open: openMemory, private: true},
		{name: "sqlite", form: "sqlite:///path", check: checkSQLite, open: openSQLite},
		{name: "redis", form: "redis://host:port/db", check: checkRedis, open: openRedis, server: true, member: true},
		{name: "rediss", form: "rediss://host:port/db", check: checkRedis, open: openRedis, server: true, member: true},
		{name: "redis+sentinel", form: "redis+sentinel://host:port,host:port/master-name/db", check: checkSentinel, open: openSentinel, server: true},
		{name: "redis+cluster", form: "redis+cluster://host:port,host:port", check: checkCluster, open: openCluster, server: true},
		{name: "redlock", form: "redlock://host:port,host:port,host:port/db", check: checkQuorum, open: openQuorum, server: true},
		{name: "postgres", form: "postgres://user@host:port/db", check: checkPostgres, open: openPostgres, server: true, member: true},
		{name: "postgresql", form: "postgresql://user@host:port/db", check: checkPostgres, open: openPostgres, server: true, member: true},
		{name: "mysql", form: "mysql://user@host:port/db", check: checkMySQL, open: openMySQL, server: true},
		{name: "mariadb", form: "mariadb://user@host:port/db", check: checkMySQL, open: openMySQL, server: true},
		{name: "etcd", form: "etcd://host:port,host:port/prefix", check: checkEtcd, open: openEtcd, server: true},
		{name: "etcds", form: "etcds://host:port,host:port/prefix", check: checkEtcd, open: openEtcd, server: true},
		{name: "zk", form: "zk://host:port,host:port/root", check: checkZooKeeper, open: openZooKeeper, server: true},
	}
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

// Forms says for people how URLs are written.
func Forms() string {
	var forms []string
	for _, s := range schemes() {
		forms = append(forms, s.form)
	}
	return strings.Join(forms, ", ")
}
