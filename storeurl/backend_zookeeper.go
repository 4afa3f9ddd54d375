package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/fencelock/fencelock/zklock"
)

// checkZooKeeper reads zk://host:port,host:port/root, or zks with TLS. Any of the servers is enough. The
// path is the node below which everything is kept.
func checkZooKeeper(u *URL, rest *url.URL) error {
	port := "2181"
	if u.scheme.tls {
		port = "2281"
	}
	if err := u.tree(rest, port); err != nil {
		return err
	}
	if (u.user == "") != (u.password == "") {
		return fmt.Errorf("ZooKeeper wants a user and a password, or neither; write the user into the URL, "+
			"as in %s://user@host:port, and the password into %s", u.Scheme, EnvPassword)
	}
	return u.onlySettings()
}

func openZooKeeper(_ context.Context, u *URL, c *Config) (*Store, error) {
	o := &zklock.Options{SessionTimeout: c.SessionTimeout}
	if u.scheme.tls {
		var err error
		if o.TLS, err = u.tlsConfig(); err != nil {
			return nil, err
		}
	}
	if u.Path != "" {
		o.Prefix = "/" + u.Path
	}
	if u.user != "" {
		o.Digest = u.user + ":" + u.password
	}
	b := zklock.New(strings.Split(u.Host, ","), o)
	return &Store{Backend: b, ping: readLine(b), close: func() {}}, nil
}
