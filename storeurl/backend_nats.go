package storeurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/natslock"
)

// checkNATS reads nats://host:port,host:port/bucket. Any of the servers is enough.
func checkNATS(u *URL, rest *url.URL) error {
	if err := u.tree(rest, "4222"); err != nil {
		return err
	}
	if strings.Contains(u.Path, "/") {
		return fmt.Errorf("what follows the host of the %s URL is not the name of a bucket; write %s",
			u.Scheme, u.scheme.form)
	}
	if u.user != "" && u.password == "" {
		return fmt.Errorf("the %s URL has a user without a password; write a token as %s://:TOKEN@host, or put it "+
			"or the password into %s", u.Scheme, u.Scheme, EnvPassword)
	}
	if err := u.foreign(foreignNATS); err != nil {
		return err
	}
	return u.onlySettings("creds")
}

func openNATS(_ context.Context, u *URL, c *Config) (*Store, error) {
	o, err := u.natsOptions(c)
	if err != nil {
		return nil, err
	}
	// The server says to the connection that a right is missing, and does not answer the request.
	var endPing atomic.Pointer[context.CancelFunc]
	o = append(o, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if end := endPing.Load(); end != nil && errors.Is(err, nats.ErrPermissionViolation) {
			(*end)()
		}
	}))
	nc, err := nats.Connect("nats://"+strings.ReplaceAll(u.Host, ",", ",nats://"), o...)
	if err != nil {
		return nil, u.admittedByNATS(err, nil)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	b := natslock.New(js, &natslock.Options{Bucket: u.Path})
	return &Store{
		Backend: b,
		ping: func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			endPing.Store(&cancel)
			err := b.Ping(ctx)
			if err != nil && !nc.IsConnected() {
				awaitNATS(ctx, nc)
				err = b.Ping(ctx)
			}
			if err != nil && !nc.IsConnected() && nc.LastError() == nil {
				return nats.ErrNoServers // nobody has refused
			}
			return u.admittedByNATS(err, nc)
		},
		close: nc.Close,
	}, nil
}

// awaitNATS waits for a connection, or until it is known why there is none. The client keeps that of its second try
// only, which comes after 200 to 300 ms.
func awaitNATS(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !nc.IsConnected() && nc.LastError() == nil {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// natsOptions has a connection that is down refuse requests, and not keep them for later.
func (u *URL) natsOptions(c *Config) ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name("fencelock"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(200 * time.Millisecond), nats.Timeout(cmp.Or(c.DialTimeout, 5*time.Second)),
		// Without it, a server that lets the user not in for a while ends the connection for good.
		nats.IgnoreAuthErrorAbort(),
	}
	if u.settings["creds"] != "" {
		o = append(o, nats.UserCredentials(u.settings["creds"]))
	}
	switch {
	case u.user != "":
		o = append(o, nats.UserInfo(u.user, u.password))
	case u.password != "":
		o = append(o, nats.Token(u.password))
	}
	if u.scheme.tls {
		config, err := u.tlsConfig()
		if err != nil {
			return nil, err
		}
		o = append(o, nats.Secure(config))
	}
	if c.Dial != nil {
		o = append(o, nats.SetCustomDialer(dialer(c.Dial)))
	}
	return o, nil
}

// dialer is Config.Dial, as package nats has it.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func (d dialer) Dial(network, addr string) (net.Conn, error) {
	return d(context.Background(), network, addr)
}

// admittedByNATS makes a DeniedError of NATS's ways to say that it does not let us in.
func (u *URL) admittedByNATS(err error, nc *nats.Conn) error {
	if err == nil {
		return nil
	}
	last := err
	if nc != nil && !nc.IsConnected() {
		last = nc.LastError()
	}
	if nc != nil && errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		says := "a right that package natslock lists is missing: " + nc.LastError().Error()
		return &DeniedError{Given: true, says: says}
	}
	for _, no := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked} {
		if errors.Is(last, no) {
			return u.denied()
		}
	}
	return err
}
