package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/zklock"
)

// checkZooKeeper reads zk://host:port,host:port/root. All servers of the ensemble may
// be named, and any of them is enough. The path is the node below which everything is
// kept. Complaints do not repeat what they are about: it may be part of a password.
func checkZooKeeper(p *place) error {
	var servers []string
	for _, s := range strings.Split(p.url.Host, ",") {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), "2181"
		}
		if host == "" || port == "" {
			return usage("the zk URL has no host, or a comma too many; write %s", p.scheme.form)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	p.url.Host = strings.Join(servers, ",")
	p.url.Path = strings.Trim(p.url.Path, "/")
	p.text = p.scheme.name + " " + p.url.Host
	if p.url.Path != "" {
		p.text += "/" + p.url.Path
	}
	if (p.secret.user == "") != (p.secret.password == "") {
		return usage("ZooKeeper wants a user and a password, or neither; write the user into the URL, as in %s://user@host:port, and the password into %s",
			p.scheme.name, envPassword)
	}
	return nil
}

func openZooKeeper(ctx context.Context, p *place) (*store, error) {
	o := &zklock.Options{}
	if p.url.Path != "" {
		o.Prefix = "/" + p.url.Path
	}
	if p.secret.user != "" {
		o.Digest = p.secret.user + ":" + p.secret.password
	}
	b := zklock.New(strings.Split(p.url.Host, ","), o)
	if err := b.Connect(ctx); err != nil {
		_ = b.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var permanent *driver.PermanentError
		if errors.As(err, &permanent) {
			return nil, permanent
		}
		return nil, err
	}
	return &store{b, func() { _ = b.Close() }}, nil
}
