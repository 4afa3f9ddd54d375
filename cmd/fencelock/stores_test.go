//go:build unix

package main

import (
	"crypto/tls"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

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
				// One node serves a third of the names. No name may wait forever.
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor --quick"},
				{"redis://" + g.Addrs()[0], "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor"},
				{"bridge:redis://" + g.Addrs()[0] + ",memory:", "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
				{"bridge:redis://" + g.Addrs()[0] + "?format=redisson,memory:", "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", "doctor --quick"},
				{"redlock://" + strings.Join(g.Addrs()[:3], ","), "s3cr3t/#", exitConfig, "use redis+cluster:// in the URL", ""},
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
	holder := s.holds(longRun)
	s.wants(exitNotAcquired, "run", "-n", "n", "--", "touch", "ran").wantLine(`"n" was not acquired`)
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
	ctx := steps.Soon(t)
	must(t, steps.ErrOf(root.UserAdd(ctx, "root", "s3cr3t/#")))
	must(t, steps.ErrOf(root.UserGrantRole(ctx, "root", "root")))
	must(t, steps.ErrOf(root.AuthEnable(ctx)))
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
	holder := s.holds(longRun, "--ttl", "5s")
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
				wait = "10" // the client of etcd does not say why it could not connect
			}
			addr, said := listenTLS(t, authority.TLS.Certificates[0])
			s := newStage(t, scheme+"://user:s3cr3t@"+addr)
			p := s.wants(code, "run", "--wait", wait, "n", "--", "touch", "ran")
			if text := p.out.String() + p.err.String(); strings.Contains(text, "s3cr3t") {
				t.Errorf("the password is shown: %s", text)
			}
			p.wantLine()
			steps.Is(t, "the command ran", steps.ErrOf(os.Stat(s.path("ran"))), os.ErrNotExist)
			steps.Same(t, "a server that cannot prove who it is was told", <-said, "")
			for len(said) > 0 {
				steps.Same(t, "it was told later", <-said, "")
			}
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

// listenTLS speaks TLS, and sends what each connection says first.
func listenTLS(t *testing.T, c tls.Certificate) (addr string, said chan string) {
	t.Helper()
	// In this version the handshake is over only when the client has agreed.
	config := &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	said = make(chan string, 1000)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 1000)
				n, _ := conn.Read(b)
				said <- string(b[:n])
			}()
		}
	}()
	return l.Addr().String(), said
}

// A server may have shorter sessions than the --ttl, and says so only when one begins. The
// command must not be ended for a lease that is renewed in time.
func TestStoreWithShortLeases(t *testing.T) {
	t.Parallel()
	short := testserver.ZooKeeper(t, testserver.Config("maxSessionTimeout=15000"))
	s := newStage(t, "zk://"+short.Addr())
	s.must("run", "job", "--", "sleep", "20") // longer than a session
	p := s.wants(0, "run", "--ttl", "20", "job", "--", "true")
	p.wantLine(`"job" has a shorter lease than --ttl 20s`)
}
