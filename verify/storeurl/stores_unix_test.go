//go:build unix

package storeurl_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/zklock"
)

// TestServerThatWasAwayServesThoseWhoWait: PostgreSQL starts a process for each connection. Callers
// who give up while it hangs, and try again, must not leave it a queue of connections that nobody
// waits for any more: those who wait behind them would give up in turn.
//
//verify:fault PostgreSQL | stopped while callers give up
func TestServerThatWasAwayServesThoseWhoWait(t *testing.T) {
	server := testserver.Postgres(t, testserver.Config("log_connections = on"))
	store, err := storeurl.Open(t.Context(), server.URL())
	steps.Must(t, err)
	defer store.Close()
	steps.Must(t, store.Ping(t.Context()))
	connections := func() int { return strings.Count(server.Log(), "connection received") }
	before := connections()

	steps.Must(t, server.Pause())
	const callers, rounds, patience = 4, 20, 100 * time.Millisecond
	paused := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if err := store.Ping(ctx); err == nil {
					t.Error("a server that stands still has answered")
				}
				cancel()
			}
		})
	}
	all.Wait()
	steps.Must(t, server.Continue())

	steps.Must(t, store.Ping(steps.Soon(t)))
	// The pool has two connections. Each that was open was given up, and its statement canceled over
	// another one. Two were begun instead, and those were taken over, or given up after five seconds.
	most := 6 + 2*int(time.Since(paused)/(5*time.Second))
	if n := connections() - before; n > most {
		t.Errorf("%d connections for %d calls in %v; want at most %d", n, callers*rounds, time.Since(paused), most)
	}
}

// A program waits for locks behind PgBouncer in transaction pooling. A LISTEN would stay in a session that other
// programs use next. They had notifications that they had not asked for, PgBouncer logged each one that came between
// two of them, and PgBouncer 1.18 ended at some.
func TestNobodyListensThroughAPooler(t *testing.T) {
	server := testserver.Postgres(t)
	front := testserver.PgBouncer(t, server, testserver.Config("default_pool_size = 1"))
	for name, tt := range map[string]struct {
		url    string
		listen bool
	}{
		"behind a pooler": {front.URL() + "&default_query_exec_mode=exec", false},
		"directly":        {server.URL(), true},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := pgx.ParseConfig(tt.url)
			steps.Must(t, err)
			db, err := sql.Open("pgx", tt.url)
			steps.Must(t, err)
			defer db.Close()
			ctx, cancel := context.WithTimeout(t.Context(), enough)
			defer cancel()
			heard := false
			err = storeurl.Listen(config, db)(ctx, "news", func() { heard = true; cancel() })
			if heard != tt.listen || err == nil {
				t.Errorf("Listen has heard: %v, and returned %v", heard, err)
			}
			var channels int
			if err := db.QueryRow("SELECT count(*) FROM pg_listening_channels()").Scan(&channels); err != nil || channels > 0 {
				t.Errorf("a session that others use listens to %d channels, %v", channels, err)
			}
		})
	}
}

// A bridge named the locks of a session of PostgreSQL through PgBouncer, or on a standby: they were granted, and
// excluded no program of the other library.
func TestLocksOfASessionWantThePrimaryItself(t *testing.T) {
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	db, err := sql.Open("pgx", primary.URL())
	steps.Must(t, err)
	defer db.Close()
	table := "CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by text)"
	steps.Must(t, steps.ErrOf(db.ExecContext(t.Context(), table)))
	pooler := testserver.PgBouncer(t, primary)
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	for _, tt := range []struct {
		url, format, refusal string
	}{
		{primary.URL(), "advisory", ""},
		{pooler.URL(), "shedlock", ""}, // which is a table
		{pooler.URL(), "advisory", "is a pooler"},
		{pooler.URL(), "symfony", "is a pooler"},
		{standby.URL(), "advisory", "is a standby"},
	} {
		s, err := storeurl.Open(t.Context(), "bridge:"+tt.url+"&format="+tt.format+",memory:")
		steps.Must(t, err)
		err = s.Ping(t.Context())
		switch {
		case tt.refusal == "" && err != nil:
			t.Errorf("%s: %v", s.Backend.Info().Name, err)
		case tt.refusal != "" && (!errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), tt.refusal)):
			t.Errorf("%s: %v; want a refusal that says it %s", s.Backend.Info().Name, err, tt.refusal)
		}
		s.Close()
	}
}

// locks takes a lock in the store of a URL, and gives it back.
func locks(t *testing.T, raw string) {
	t.Helper()
	steps.Well(t, raw, lockOnce(t, raw, enough))
}

// socketDir is a folder with a short path, in which every user may make a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	steps.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestServersOnUnixSockets(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		dir := socketDir(t)
		s := testserver.Postgres(t, testserver.Config("unix_socket_directories = '"+dir+"'"))
		_, port, _ := net.SplitHostPort(s.Addr())
		for _, form := range []string{
			"postgres:///postgres?host=%s&port=%s&user=postgres",
			"postgres://postgres@/postgres?host=%s&port=%s&schema=public&pgbouncer=true&connection_limit=1",
			"postgres://postgres@" + url.PathEscape(dir) + ":" + port + "/postgres",
		} {
			raw := form
			if strings.Contains(form, "%s") {
				raw = fmt.Sprintf(form, dir, port)
			}
			locks(t, raw)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(socketDir(t), "m.sock")
		testserver.MariaDB(t, testserver.Config("socket="+socket))
		locks(t, "mysql://root@localhost/locks?socket="+socket)
		locks(t, "mysql://root@/locks?unix_socket="+socket+"&connection_limit=5")
		locks(t, "root@unix("+socket+")/locks?timeout=20s")
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(socketDir(t), "r.sock")
		testserver.Redis(t, testserver.Password("s3cret"), testserver.Config("unixsocket "+socket, "unixsocketperm 777"))
		locks(t, "unix://:s3cret@"+socket+"?db=3")
		locks(t, "redis+socket://:s3cret@"+socket)
	})
}

// TestURLOfAllPostgresServersFindsThePrimary: doctor tells who is connected to a standby to write
// all hosts.
func TestURLOfAllPostgresServersFindsThePrimary(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	for _, hosts := range []string{standby.Addr() + "," + primary.Addr(), primary.Addr() + "," + standby.Addr()} {
		locks(t, "postgres://postgres@"+hosts+"/postgres?sslmode=disable")
	}
}

// A server before etcd 3.5 forgets the tokens of its users when it restarts. A store that was opened by
// its URL logs in again.
func TestStoreURLLogsInToEtcdAgain(t *testing.T) {
	t.Parallel()
	flags := []string{"--bcrypt-cost=4", "--old-logins"}
	if os.Getenv("FENCELOCK_ETCD") != "" {
		flags = flags[:1] // whatever that server does
	}
	s := testserver.Etcd(t, testserver.Persist(true), testserver.Config(flags...))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}})
	steps.Must(t, err)
	defer root.Close()
	steps.Must(t, steps.ErrOf(root.UserAdd(steps.Soon(t), "root", "s3cret")))
	steps.Must(t, steps.ErrOf(root.UserGrantRole(steps.Soon(t), "root", "root")))
	steps.Must(t, steps.ErrOf(root.AuthEnable(steps.Soon(t))))

	u, err := storeurl.Parse("etcd://root@"+s.Addr(), storeurl.Source{Name: "test", Password: "s3cret"})
	steps.Must(t, err)
	store, err := u.Open(steps.Soon(t), storeurl.Config{})
	steps.Must(t, err)
	defer store.Close()
	held := steps.Hold(t, store.Backend, steps.Claim("k"))
	// It writes the database first: a server reads its log again from there, and with it the logins.
	as, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "s3cret"})
	steps.Must(t, err)
	defer as.Close()
	steps.Must(t, steps.ErrOf(as.Defragment(context.Background(), s.Addr())))
	steps.Must(t, s.Restart())
	steps.PersistRenew(t, store.Backend, held)
	steps.PersistLeave(t, store.Backend, held)
}

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

// A claim outlives the restart of a server with TLS.
func TestZooKeeperLeaseOutlivesARestartWithTLS(t *testing.T) {
	f, port := newFiles(t), freePort(t)
	server := testserver.ZooKeeper(t, testserver.Persist(true), secureZooKeeper(t, f, port))
	b := zklock.New([]string{"127.0.0.1:" + port}, &zklock.Options{TLS: f.config(t), SessionTimeout: 9 * time.Minute})
	defer b.Close()
	held := steps.Hold(t, b, steps.Claim("job"))
	steps.Must(t, server.Restart())
	steps.Leave(t, b, steps.PersistEnter(t, b, steps.Claim("other"))) // over the new connection
	steps.Leave(t, b, held)
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
	err := lockOnce(t, "zks://"+wrong+","+wrong+query, 10*enough)
	if !errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a server that is trusted: %v; want what its certificate lacks, at once", err)
	}
}
