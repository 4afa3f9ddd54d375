package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/etcdlock"
)

// checkEtcd reads etcd://host:port,host:port/prefix. All members may be named, and any
// of them is enough. The path is what the keys begin with. Complaints do not repeat
// what they are about: it may be part of a password.
func checkEtcd(p *place) error {
	var members []string
	for _, m := range strings.Split(p.url.Host, ",") {
		host, port, err := net.SplitHostPort(m)
		if err != nil {
			host, port = strings.Trim(m, "[]"), "2379"
		}
		if host == "" || port == "" {
			return usage("the etcd URL has no host, or a comma too many; write %s", p.scheme.form)
		}
		members = append(members, net.JoinHostPort(host, port))
	}
	p.url.Host = strings.Join(members, ",")
	p.url.Path = strings.Trim(p.url.Path, "/")
	p.text = p.scheme.name + " " + p.url.Host
	if p.url.Path != "" {
		p.text += "/" + p.url.Path
	}
	if p.secret.user == "" && p.secret.password != "" {
		return usage("etcd wants a user with the password; write the user into the URL, as in %s://user@host:port", p.scheme.name)
	}
	return nil
}

func openEtcd(ctx context.Context, p *place) (*store, error) {
	cfg := clientv3.Config{
		DialTimeout: firstContact,
		Username:    p.secret.user,
		Password:    p.secret.password,
		Logger:      zap.NewNop(), // what matters comes back as an error
		DialOptions: []grpc.DialOption{etcdlock.Relogin()},
	}
	transport := "http://"
	if p.scheme.name == "etcds" {
		transport = "https://"
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, m := range strings.Split(p.url.Host, ",") {
		cfg.Endpoints = append(cfg.Endpoints, transport+m)
	}
	given := p.secret.password != ""
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, deniedByEtcd(err, given)
	}
	o := &etcdlock.Options{}
	if p.url.Path != "" {
		o.Prefix = p.url.Path + "/"
	}
	b := etcdlock.New(client, o)
	if err := b.Ping(ctx); err != nil {
		_ = b.Close()
		_ = client.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, deniedByEtcd(err, given)
	}
	return &store{b, func() { _ = b.Close(); _ = client.Close() }}, nil
}

// deniedByEtcd recognises etcd's ways to say that it does not let us in.
func deniedByEtcd(err error, given bool) error {
	for _, no := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrGRPCAuthFailed} {
		if errors.Is(err, no) {
			return deniedError{given}
		}
	}
	return err
}
