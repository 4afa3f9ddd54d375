//go:build unix

// Package storeurl_test opens real servers by the URLs that people have.
package storeurl_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// files are a certificate that is its own CA, and its key, in PEM form. Every user can read them.
type files struct{ ca, cert, key string }

// newFiles makes a certificate for 127.0.0.1 that serves both sides.
func newFiles(t *testing.T) files {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-tls-") // t.TempDir is closed to other users
	steps.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	steps.Must(t, os.Chmod(dir, 0o755))
	write := func(name, kind string, der []byte, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		steps.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode))
		return file
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	steps.Must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fencelock test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	steps.Must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	steps.Must(t, err)
	cert := write("cert.pem", "CERTIFICATE", der, 0o644)
	return files{cert, cert, write("key.pem", "PRIVATE KEY", keyDER, 0o644)}
}

// config is for both sides.
func (f files) config(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	steps.Must(t, err)
	ca, err := os.ReadFile(f.ca)
	steps.Must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool}
}

// front is a TLS server before a server without TLS. It wants a client's certificate.
func front(t *testing.T, f files, to string) string {
	t.Helper()
	config := f.config(t)
	config.NextProtos, config.ClientAuth = []string{"h2"}, tls.RequireAndVerifyClientCert
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	steps.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}

// freePort is a port that nobody uses at this moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// ownKey is the key as PostgreSQL wants it: closed to others, and its own.
func ownKey(t *testing.T, f files, name string) string {
	t.Helper()
	text, err := os.ReadFile(f.key)
	steps.Must(t, err)
	file := f.key + "." + name
	steps.Must(t, os.WriteFile(file, text, 0o600))
	if u, err := user.Lookup(name); err == nil && os.Geteuid() == 0 {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		steps.Must(t, os.Chown(file, uid, gid))
	}
	return file
}

// enough is longer than any of these servers takes on a busy machine.
const enough = time.Minute

// lockOnce takes a lock of the store and releases it.
func lockOnce(t *testing.T, rawURL string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	store, err := storeurl.Open(ctx, rawURL)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	locks := testclient.New(t, store.Backend, nil)
	defer locks.Close()
	lease, err := locks.Lock(ctx, "job")
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func TestURLWithTLSFilesOpensEachStore(t *testing.T) {
	f := newFiles(t)
	port := freePort(t)
	testserver.Redis(t, testserver.Config("tls-port "+port, "tls-cert-file "+f.cert, "tls-key-file "+f.key,
		"tls-ca-cert-file "+f.ca, "tls-auth-clients yes"))
	etcd := testserver.Etcd(t)
	postgres := testserver.Postgres(t, testserver.Config("ssl = on", "ssl_cert_file = '"+f.cert+"'",
		"ssl_key_file = '"+ownKey(t, f, "postgres")+"'", "ssl_ca_file = '"+f.ca+"'"))
	mariadb := testserver.MariaDB(t, testserver.Config("ssl_cert="+f.cert, "ssl_key="+f.key, "ssl_ca="+f.ca,
		"require_secure_transport=ON"))
	securePort := freePort(t)
	testserver.ZooKeeper(t, secureZooKeeper(t, f, securePort))
	plainPostgres, _, _ := strings.Cut(postgres.URL(), "?")
	query := "?" + url.Values{"ca": {f.ca}, "cert": {f.cert}, "key": {f.key}}.Encode()
	for name, rawURL := range map[string]string{
		"Redis":      "rediss://127.0.0.1:" + port,
		"etcd":       "etcds://" + front(t, f, etcd.Addr()),
		"PostgreSQL": plainPostgres,
		"MariaDB":    mariadb.URL(),
		"ZooKeeper":  "zks://127.0.0.1:" + securePort + "/locks",
	} {
		t.Run(name, func(t *testing.T) {
			steps.Well(t, "with ca, cert and key in the URL", lockOnce(t, rawURL+query, enough))
			t.Setenv(storeurl.EnvCA, f.ca)
			t.Setenv(storeurl.EnvCert, f.cert)
			t.Setenv(storeurl.EnvKey, f.key)
			steps.Well(t, "with the files in the environment", lockOnce(t, rawURL, enough))
			other := newFiles(t)
			if err := lockOnce(t, rawURL+"?ca="+url.QueryEscape(other.ca), 2*time.Second); err == nil {
				t.Error("a server whose certificate another CA has signed is trusted")
			}
			t.Setenv(storeurl.EnvCA, filepath.Join(t.TempDir(), "none"))
			if err := lockOnce(t, rawURL, enough); err == nil {
				t.Error("a CA file that is not there is no error")
			}
		})
	}
}

func TestURLsThatOtherProgramsHaveOpenTheirStores(t *testing.T) {
	redis, postgres, mariadb := testserver.Redis(t), testserver.Postgres(t), testserver.MariaDB(t)
	plain, _, _ := strings.Cut(postgres.URL(), "?")
	for _, rawURL := range []string{
		redis.URL() + "/2?pool_size=3&dial_timeout=20s",
		redis.URL() + "?db=1",
		plain + "?sslmode=disable&connect_timeout=20&application_name=job&keepalives=1",
		plain + "?sslmode=prefer&statement_timeout=60000",
		mariadb.URL() + "?parseTime=true&charset=utf8mb4&loc=UTC&timeout=20s",
		fmt.Sprintf("root@tcp(%s)/locks?parseTime=true", mariadb.Addr()),
	} {
		locks(t, rawURL)
	}
	err := lockOnce(t, redis.URL()+"/999", enough)
	if err == nil || !strings.Contains(err.Error(), "has no database 999") {
		t.Errorf("a database that is not there: %v", err)
	}
}
