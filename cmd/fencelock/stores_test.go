//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// wrongURL is a URL with something wrong, and what a verb says of it.
type wrongURL struct {
	url, password string
	code          int
	line          string
	verb          string // run, if empty
}

func (w wrongURL) check(t *testing.T) {
	s := newStage(t, w.url, envPassword+"="+w.password)
	args := []string{"run", "n", "--", "true"}
	if w.verb != "" {
		args = strings.Fields(w.verb)
	}
	p := s.wants(w.code, args...)
	if w.verb == "doctor" { // it says so in its report
		if !strings.Contains(p.out.String(), w.line) {
			t.Errorf("doctor does not say %q:\n%s", w.line, p.out.String())
		}
	} else {
		p.wantLine(w.line)
	}
	for _, secret := range []string{"s3cr3t", "wr0ng"} {
		if strings.Contains(p.err.String(), secret) {
			t.Errorf("the password is told: %s", p.err.String())
		}
	}
}

// runsWithoutPassword checks what a command finds in its environment, and what is said of it.
func (s *stage) runsWithoutPassword() {
	s.t.Helper()
	p := s.wants(0, "run", "-v", "a name", "--", "env")
	if said := p.out.String() + p.err.String(); !strings.Contains(said, "FENCELOCK_TOKEN=") {
		s.t.Errorf("the command has no token:\n%s", said)
	} else if strings.Contains(said, "s3cr3t") {
		s.t.Errorf("the password is told:\n%s", said)
	}
}

// What a user does first, on Redis with replicas: run, look, try, once; and what is
// wrong with a URL or a password is said in one line without it.
func TestRedisGroups(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, wrongs []wrongURL){
		"sentinel": func(t *testing.T) (string, []wrongURL) {
			g := testserver.RedisSentinel(t, testserver.Password("s3cr3t/#"))
			hosts := "127.0.0.1:1," + strings.Join(g.Addrs(), ",")
			return "redis+sentinel://" + hosts + "/" + g.Name, []wrongURL{
				{"redis+sentinel://" + hosts + "/other", "s3cr3t/#", exitConfig, "know no master of that name", ""},
				{"redis+sentinel://" + hosts + "/" + g.Name, "wr0ng", exitConfig, "refuses the user or the password", ""},
				{"redis+sentinel://" + hosts + "/" + g.Name, "", exitConfig, "wants a password", ""},
				{"redis+sentinel://" + hosts, "s3cr3t/#", exitConfig, "what the sentinels call the master", ""},
				{"redis+sentinel://" + hosts + "/" + g.Name + "/s3cr3t", "", exitConfig, "number of a database", ""},
				{"redis+sentinel://a,,b/m", "", exitConfig, "a comma too many", ""},
				{"redis+sentinel://" + testserver.Redis(t).Addr() + "/m", "", exitConfig, "is not a Sentinel; write redis://", ""},
				{"redis://" + g.Addrs()[0], "", exitConfig, "connect by redis+sentinel:// in the URL", ""},
				{"redis+sentinel://127.0.0.1:1/m", "s3cr3t/#", exitUnavailable, "redis+sentinel 127.0.0.1:1/m does not answer", ""},
			}
		},
		"cluster": func(t *testing.T) (string, []wrongURL) {
			g := testserver.RedisCluster(t, testserver.Password("s3cr3t/#"))
			hosts := "127.0.0.1:1," + strings.Join(g.Addrs()[:2], ",")
			single := testserver.Redis(t)
			return "redis+cluster://" + hosts, []wrongURL{
				{"redis+cluster://" + strings.Join(g.Addrs(), ","), "wr0ng", exitConfig, "refuses the user or the password", ""},
				{"redis+cluster://" + strings.Join(g.Addrs(), ","), "", exitConfig, "wants a password", ""},
				{"redis+cluster://" + single.Addr(), "", exitConfig, "is no Cluster", ""},
				{"redis+cluster://" + testserver.Redis(t, testserver.Config("cluster-enabled yes")).Addr(), "", exitUnavailable, "refuses for now: no node has slots yet", ""},
				{"redis+cluster://" + hosts + "/1", "s3cr3t/#", exitConfig, "has no databases", ""},
				{"redis+cluster://,", "", exitConfig, "no host", ""},
				// One node serves a third of the names. No name may wait forever.
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor --quick"},
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor"},
				{"bridge:redis://" + g.Addrs()[0] + ",memory:", "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"bridge:redis://" + g.Addrs()[0] + "?format=setnx,memory:", "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"bridge:redis://" + g.Addrs()[0] + "?format=redisson,memory:", "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor --quick"},
				{"redlock://" + strings.Join(g.Addrs()[:3], ","), "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"redlock://" + strings.Join(g.Addrs()[:3], ","), "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor --quick"},
				{"redis+cluster://127.0.0.1:1", "s3cr3t/#", exitUnavailable, "redis+cluster 127.0.0.1:1 does not answer", ""},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, wrongs := start(t)
			usesRedisGroup(t, url, wrongs)
		})
	}
}

func usesRedisGroup(t *testing.T, url string, wrongs []wrongURL) {
	s := newStage(t, url, envPassword+"=s3cr3t/#")
	s.runsWithoutPassword()
	holder := s.start("fencelock", "run", "--ttl", "3", "nightly", "--", "sleep", "60")
	eventually(t, "the lock is held", func() bool {
		return strings.Contains(s.must("ls"), "nightly")
	})
	p := s.wants(exitNotAcquired, "run", "-n", "nightly", "--", "touch", "ran")
	p.wantLine(`"nightly" was not acquired`)
	holder.signal("TERM")
	holder.wait()
	s.must("once", "daily", "--slot", "2026-03-01", "--", "true")
	s.must("once", "daily", "--slot", "2026-03-01", "--", "touch", "ran")
	steps.Same(t, "locks are left", s.must("ls"), "")
	if code, _ := s.run("ls", "ran"); code == 0 {
		t.Error("a command ran that should not have")
	}
	for _, w := range wrongs {
		w.check(t)
	}
}

// TestPasswordOfEtcdIsAskedAndNotTold uses an etcd with authentication.
//
//verify:fault Security | passwords appear in no error, no report and no child process
func TestPasswordOfEtcdIsAskedAndNotTold(t *testing.T) {
	t.Parallel()
	server := testserver.Etcd(t, testserver.Config("--bcrypt-cost=4"))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}})
	must(t, err)
	defer root.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "s3cr3t/#"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		must(t, step())
	}
	newStage(t, "etcd://root:s3cr3t%2F%23@"+server.Addr()+"/p").runsWithoutPassword()
	newStage(t, "etcd://root@"+server.Addr()+"/p", envPassword+"=s3cr3t/#").runsWithoutPassword()
	for _, w := range []wrongURL{
		{"etcd://root@" + server.Addr() + "/p", "wr0ng", exitConfig, "refuses the user or the password", ""},
		{"etcd://" + server.Addr() + "/p", "", exitConfig, "wants a password", ""},
	} {
		w.check(t)
	}
}

// TestDeletedDatabaseEndsTheCommand deletes the file of locks under a holder, as a cleaner of
// temporary files does. The lock is lost then: the next process uses another file.
//
//verify:fault SQLite | the database file is deleted, renamed, replaced or linked
func TestDeletedDatabaseEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.start("fencelock", "run", "--ttl", "5s", "n", "--", "sh", "-c", "touch began; sleep 600")
	eventually(t, "the command runs", func() bool {
		_, err := os.Stat(s.path("began"))
		return err == nil
	})
	for _, name := range []string{"locks.db", "locks.db-wal", "locks.db-shm"} {
		must(t, os.Remove(s.path(name)))
	}
	holder.wantExit(exitLost)
	holder.wantLine("was lost while the command ran", "deleted or replaced")
	s.must("run", "-n", "n", "--", "true")
}

// A server whose certificate nobody vouches for is not talked to: the command ends before
// it has sent anything, the password least of all.
//
//verify:fault Security | certificates are verified
func TestCertificateOfTheServerIsVerified(t *testing.T) {
	t.Parallel()
	// Only its certificate is used, which is its own authority's.
	authority := httptest.NewTLSServer(nil)
	defer authority.Close()
	for scheme, code := range map[string]int{"rediss": exitConfig, "etcds": exitUnavailable, "zks": exitConfig} {
		t.Run(scheme, func(t *testing.T) {
			wait := "60" // a busy machine
			if code == exitUnavailable {
				wait = "3" // the client of etcd does not say why it could not connect
			}
			got := listenTLS(t, authority.TLS.Certificates[0])
			s := newStage(t, scheme+"://user:s3cr3t@"+got.addr)
			p := s.wants(code, "run", "--wait", wait, "n", "--", "touch", "ran")
			if text := p.out.String() + p.err.String(); strings.Contains(text, "s3cr3t") {
				t.Errorf("the password is shown: %s", text)
			}
			if p.wantLine(); strings.TrimSpace(s.read("ran")) != "" {
				t.Error("the command ran")
			}
			hands, said := got.heard()
			if hands == 0 {
				t.Error("nobody connected; this test shows nothing")
			}
			steps.Same(t, "a server that cannot prove who it is was told", said, "")
		})
	}
}

func TestServerWithoutTLSIsHintedAt(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for _, scheme := range []string{"rediss", "etcds", "zks"} {
		s := newStage(t, scheme+"://"+plain.Listener.Addr().String())
		s.wants(exitUnavailable, "run", "-n", "n", "--", "true").wantLine("that it speaks TLS on this port")
	}
}

// listener speaks TLS, and keeps what it is told.
type listener struct {
	addr string

	mu    sync.Mutex
	hands int // clients that connected
	said  strings.Builder
}

func (l *listener) heard() (hands int, said string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hands, l.said.String()
}

func listenTLS(t *testing.T, c tls.Certificate) *listener {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &listener{addr: socket.Addr().String()}
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	t.Cleanup(func() { socket.Close() })
	group.Go(func() {
		for {
			raw, err := socket.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.hands++
			l.mu.Unlock()
			group.Go(func() {
				defer raw.Close()
				_ = raw.SetDeadline(time.Now().Add(5 * time.Second))
				// In this version the handshake is over only when the client has agreed.
				conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12})
				b := make([]byte, 1000)
				n, _ := conn.Read(b)
				l.mu.Lock()
				l.said.Write(b[:n])
				l.mu.Unlock()
			})
		}
	})
	return l
}

// A server may have shorter sessions than the --ttl, and says so only when one begins. The
// command must not be ended for a lease that is renewed in time.
func TestStoreWithShortLeases(t *testing.T) {
	t.Parallel()
	short := testserver.ZooKeeper(t, testserver.Config("maxSessionTimeout=6000"))
	s := newStage(t, "zk://"+short.Addr())
	s.must("run", "job", "--", "sleep", "7")
	p := s.wants(0, "run", "--ttl", "20", "job", "--", "true")
	p.wantLine(`"job" has a shorter lease than --ttl 20s`)
}
