package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/etcdlock"
)

// checkEtcd reads etcd://host:port,host:port/prefix. Any of the members is enough. The
// path is what the keys begin with.
func checkEtcd(u *URL, rest *url.URL) error {
	if err := u.tree(rest, "2379"); err != nil {
		return err
	}
	if u.user == "" && u.password != "" {
		return fmt.Errorf("etcd wants a user with the password; write the user into the URL, "+
			"as in %s://user@host:port", u.Scheme)
	}
	return u.onlySettings()
}

func openEtcd(_ context.Context, u *URL, c *Config) (*Store, error) {
	config, err := u.etcdConfig(c)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, u.admittedByEtcd(err)
	}
	o := &etcdlock.Options{}
	if u.Path != "" {
		o.Prefix = u.Path + "/"
	}
	b := etcdlock.New(client, o)
	return &Store{
		Backend: b,
		ping:    func(ctx context.Context) error { return u.admittedByEtcd(b.Ping(ctx)) },
		close:   func() { _ = client.Close() },
	}, nil
}

func (u *URL) etcdConfig(c *Config) (*clientv3.Config, error) {
	timeout := c.DialTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	config := &clientv3.Config{
		DialTimeout: timeout, Username: u.user, Password: u.password,
		Logger:      zap.NewNop(), // what matters comes back as an error
		DialOptions: []grpc.DialOption{etcdlock.Relogin()},
	}
	transport := "http://"
	if u.scheme.tls {
		transport = "https://"
		var err error
		if config.TLS, err = u.tlsConfig(); err != nil {
			return nil, err
		}
	}
	for h := range strings.SplitSeq(u.Host, ",") {
		config.Endpoints = append(config.Endpoints, transport+h)
	}
	if c.Dial != nil {
		dial := func(ctx context.Context, addr string) (net.Conn, error) { return c.Dial(ctx, "tcp", addr) }
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(dial))
	}
	return config, nil
}

// admittedByEtcd makes a DeniedError of etcd's ways to say that it does not let us in.
func (u *URL) admittedByEtcd(err error) error {
	for _, no := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrGRPCAuthFailed} {
		if errors.Is(err, no) {
			return u.denied()
		}
	}
	return err
}
