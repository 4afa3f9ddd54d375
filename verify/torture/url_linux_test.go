package torture

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/traffic"
)

// TestURLsAreTortured gives servers of somebody else by URL, for each way in which the
// torture gets between workers and servers: a proxy for each, and one for all where servers
// tell of others, have names in certificates, or are of several kinds.
func TestURLsAreTortured(t *testing.T) {
	front := newFront(t)
	t.Setenv("SSL_CERT_FILE", front.file)
	for name, start := range map[string]func(t *testing.T) string{
		"rediss": func(t *testing.T) string {
			s := testserver.Redis(t, testserver.Password("s3cret"))
			return "rediss://:s3cret@" + front.before(t, s.Addr()) + "/3"
		},
		"sentinel": func(t *testing.T) string {
			g := testserver.RedisSentinel(t)
			return "redis+sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name + "/1"
		},
		"members": func(t *testing.T) string {
			var urls []string
			for range 3 {
				urls = append(urls, testserver.Redis(t).URL())
			}
			url := "redlock:" + strings.Join(urls, ",")
			steps.Must(t, initialise(context.Background(), url, ballot.Membership{}))
			return url
		},
		"etcds": func(t *testing.T) string {
			return "etcds://" + front.before(t, testserver.Etcd(t).Addr()) + "/app"
		},
		"zk": func(t *testing.T) string { return testserver.ZooKeeper(t).URL() + "/root" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tortureURL(t, start(t))
		})
	}
}

func tortureURL(t *testing.T, url string) {
	t.Helper()
	r, err := Run(context.Background(), Options{
		URL: url, Table: allServices(), For: 5 * time.Second, Seed: seed(t), Faults: "kill,pause,cut,silence,latency", TTL: 700 * time.Millisecond,
		Dir: folder(t), Workers: 2, Enough: enough(20, 1),
	})
	steps.Must(t, err)
	var text bytes.Buffer
	r.Summary(&text)
	t.Log("\n" + text.String())
	for _, v := range r.Violations {
		t.Errorf("breach: %v", v)
	}
	if r.Numbers.Held < 20 || len(r.Numbers.Faults) == 0 {
		t.Errorf("%d grants and faults %v are too few to say anything", r.Numbers.Held, r.Numbers.Faults)
	}
}

// front is what ends TLS in front of a server.
type front struct {
	config *tls.Config
	file   string // the certificate of who vouches for it
}

func newFront(t *testing.T) *front {
	t.Helper()
	authority := httptest.NewTLSServer(nil) // only its certificate is used, which is its own authority's
	authority.Close()
	f := &front{
		config: &tls.Config{Certificates: authority.TLS.Certificates, NextProtos: []string{"h2"}},
		file:   filepath.Join(t.TempDir(), "ca.pem"),
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})
	steps.Must(t, os.WriteFile(f.file, text, 0o600))
	return f
}

// before returns an address that speaks TLS and passes on to addr.
func (f *front) before(t *testing.T, addr string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", f.config)
	steps.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				s, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer s.Close()
				go func() {
					_, _ = io.Copy(s, c)
					s.Close()
				}()
				_, _ = io.Copy(c, s)
			}()
		}
	}()
	return l.Addr().String()
}

// Every scheme of the command is a plan: which store it is, and who stands between it and
// the workers.
func TestEveryURLHasAPlan(t *testing.T) {
	for raw, want := range map[string]struct {
		proxies int
		via     bool // one for all
	}{
		"local:":                   {0, false},
		"sqlite:///tmp/x.db":       {0, false},
		"redis://h":                {1, false},
		"rediss://h":               {1, true},
		"redis+sentinel://a,b,c/m": {1, true},
		"redis+cluster://a,b":      {1, true},
		"redlock:redis://a,redis://b,redis://c/1": {1, true},
		"postgres://h/db":                         {1, false},
		"mysql://u@h/db":                          {1, false},
		"etcd://a,b,c/p":                          {3, false},
		"zk://a,b,c/r":                            {3, false},
		"zks://a,b":                               {2, false},
	} {
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		s, err := reach(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if _, ok := traffic.Schemes()[s.service]; !ok {
			t.Errorf("%s is the service %q, which nobody knows", raw, s.service)
		}
		steps.Same(t, raw+": proxies", s.proxies, (want.proxies > 0))
		if !s.proxies {
			continue
		}
		to, via, proxies, err := through(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if len(proxies) != want.proxies || (via != "") != want.via || (to == raw) != want.via {
			t.Errorf("%s goes to %s by %d proxies and %q; want %+v", raw, to, len(proxies), via, want)
		}
		if !want.via {
			before, _ := traffic.ParseURL(raw)
			after, err := traffic.ParseURL(to)
			if err != nil || after.Path != before.Path || after.Scheme != before.Scheme || !strings.HasPrefix(after.Host, "127.0.0.1:") {
				t.Errorf("%s goes to %s, %v", raw, to, err)
			}
		}
		for _, p := range proxies {
			p.Close()
		}
	}
}

// What a URL has nothing for is an error that says what it would take, and so is a store
// that others use.
func TestFaultsThatAURLHasNothingFor(t *testing.T) {
	s := testserver.Redis(t)
	o := Options{URL: s.URL(), Table: allServices(), For: time.Second, Seed: 1, Dir: folder(t), Faults: "kill,server-restart,clock"}
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "server-restart needs servers of the torture's own") || !strings.Contains(err.Error(), "clock needs") {
		t.Errorf("%v; want that it needs servers of its own", err)
	}
	locks, err := traffic.Schemes()["redis"].Open(context.Background(), s.URL(), "", 20*time.Second)
	steps.Must(t, err)
	defer locks.Close()
	if _, _, err := locks.Take(context.Background(), traffic.Want{Key: "work"}); err != nil {
		t.Fatal(err)
	}
	o.Faults = "kill"
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "it is in use: 1 locks") {
		t.Errorf("%v; want that the store is in use", err)
	}
}
