//go:build unix

package storeurl_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// secureZooKeeper adds a port with TLS, at which clients must have a certificate.
func secureZooKeeper(t *testing.T, f files, port string) testserver.Option {
	t.Helper()
	var both []byte
	for _, name := range []string{f.cert, f.key} {
		text, err := os.ReadFile(name)
		steps.Must(t, err)
		both = append(both, text...)
	}
	store := filepath.Join(t.TempDir(), "store.pem")
	steps.Must(t, os.WriteFile(store, both, 0o600))
	return testserver.Config(
		"secureClientPortAddress=127.0.0.1", "secureClientPort="+port,
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.type=PEM", "ssl.keyStore.location="+store,
		"ssl.trustStore.type=PEM", "ssl.trustStore.location="+f.ca,
	)
}

// A lease outlives the restart of a server with TLS.
func TestZooKeeperLeaseOutlivesARestartWithTLS(t *testing.T) {
	f, port := newFiles(t), freePort(t)
	server := testserver.ZooKeeper(t, testserver.Persist(true), secureZooKeeper(t, f, port))
	query := url.Values{"ca": {f.ca}, "cert": {f.cert}, "key": {f.key}}.Encode()
	store, err := storeurl.Open(t.Context(), "zks://127.0.0.1:"+port+"?"+query)
	steps.Must(t, err)
	defer store.Close()
	locks := testclient.New(t, store.Backend, nil)
	defer locks.Close()
	lease, err := locks.Lock(t.Context(), "job")
	steps.Must(t, err)
	steps.Must(t, server.Restart())
	other, err := locks.Lock(t.Context(), "other") // over the new connection
	steps.Must(t, err)
	for _, l := range []interface{ Release(context.Context) error }{other, lease} {
		steps.OK(t, l.Release(t.Context()))
	}
}

// A server that cannot prove who it is is passed over, as one that is down. If there is no
// other, the error comes at once.
//
//verify:fault Security | certificates are verified
func TestZooKeeperWithAnUntrustedCertificate(t *testing.T) {
	f, other, port := newFiles(t), newFiles(t), freePort(t)
	server := testserver.ZooKeeper(t, secureZooKeeper(t, f, port))
	wrong := front(t, other, server.Addr())
	query := "?" + url.Values{"ca": {f.ca}, "cert": {f.cert}, "key": {f.key}}.Encode()
	steps.Well(t, "beside a server that is trusted", lockOnce(t, "zks://"+wrong+",127.0.0.1:"+port+query, enough))
	begin := time.Now()
	err := lockOnce(t, "zks://"+wrong+","+wrong+query, enough)
	if !errors.As(err, new(*tls.CertificateVerificationError)) || time.Since(begin) > enough/2 {
		t.Errorf("after %v without a server that is trusted: %v", time.Since(begin), err)
	}
}
