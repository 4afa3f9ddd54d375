package storeurl

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// bareAddress is a host and a port without a scheme.
var bareAddress = regexp.MustCompile(`^[A-Za-z0-9.-]+:[0-9]{1,5}(/[A-Za-z0-9_-]*)?$`)

// keywords is how libpq may be told where a server is.
var keywords = regexp.MustCompile(`^(host|hostaddr|dbname|user|port|service)=\S+( |$)`)

// usual are the schemes of stores by their usual ports.
var usual = map[string]string{
	"6379": "redis", "26379": "redis+sentinel", "5432": "postgres", "6432": "postgres",
	"3306": "mysql", "2379": "etcd", "2181": "zk", "2281": "zks", "4222": "nats",
}

// otherNames are schemes of other programs for stores that we know.
var otherNames = map[string]string{
	"sqlite3": "sqlite", "file": "sqlite", "pg": "postgres", "pgsql": "postgres", "pgx": "postgres", "mysql2": "mysql",
	"redis-sentinel": "redis+sentinel", "sentinel": "redis+sentinel", "redis-cluster": "redis+cluster",
	"zookeeper": "zk", "valkey": "redis", "valkeys": "rediss", "etcd3": "etcd", "redlocks": "redlock", "mem": "memory",
}

// unknownScheme says what a URL without a known scheme may have been meant to be.
func unknownScheme(raw, scheme string, from Source) error {
	if bareAddress.MatchString(raw) {
		host, _, _ := strings.Cut(raw, "/")
		_, port, _ := net.SplitHostPort(host)
		if kind := usual[port]; kind != "" {
			return fmt.Errorf("%q in %s has no scheme; did you mean %s?", raw, from.Name, example(kind, host))
		}
		return fmt.Errorf("%q in %s has no scheme, so the kind of store is unknown; for a Redis server write %s",
			raw, from.Name, example("redis", host))
	}
	if keywords.MatchString(raw) {
		return fmt.Errorf("%s has keywords of libpq, not a URL; write %s", from.Name, find("postgres").form)
	}
	if scheme == "" {
		return fmt.Errorf("the URL in %s has no scheme; write for example redis://host:port/0; known schemes are %s",
			from.Name, strings.Join(Schemes(), ", "))
	}
	if scheme == "http" || scheme == "https" {
		return fmt.Errorf("%s has the address of a server, as of fencelock serve, which its HTTP clients want; "+
			"write the URL of the store, as serve has it", from.Name)
	}
	meant := otherNames[scheme]
	if rest, ok := strings.CutPrefix(raw, "jdbc:"); ok {
		meant, _, _ = strings.Cut(rest, ":")
		meant = cmp.Or(otherNames[meant], meant)
		if !slices.Contains(Schemes(), meant) {
			meant = ""
		}
	}
	if first, _, ok := strings.Cut(scheme, "+"); meant == "" && ok && slices.Contains(Schemes(), first) {
		meant = first // SQLAlchemy's postgresql+psycopg
	}
	if meant == "" {
		meant = nearest(scheme, Schemes())
	}
	if meant == "" {
		return fmt.Errorf("unknown URL scheme %q in %s; known are %s", scheme, from.Name, strings.Join(Schemes(), ", "))
	}
	return fmt.Errorf("unknown URL scheme %q in %s; did you mean %s?", scheme, from.Name, find(meant).form)
}

// example is the form of a scheme with a host and a port.
func example(scheme, host string) string {
	form := find(scheme).form
	form = strings.Replace(form, "host:port,host:port", host, 1)
	return strings.Replace(form, "host:port", host, 1)
}

// schemesWithTLS are the names of schemes whose connections are or may be encrypted.
func schemesWithTLS() []string {
	var names []string
	for _, s := range schemes() {
		if s.tls {
			names = append(names, s.name)
		}
	}
	return names
}
