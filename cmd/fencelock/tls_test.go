//go:build unix

package main

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server whose certificate nobody vouches for is not talked to: the command ends before
// it has sent anything, the password least of all.
func TestCertificateOfTheServerIsVerified(t *testing.T) {
	// Only its certificate is used, which is its own authority's.
	authority := httptest.NewTLSServer(nil)
	defer authority.Close()
	for _, scheme := range []string{"rediss", "etcds"} {
		t.Run(scheme, func(t *testing.T) {
			got := listenTLS(t, authority.TLS.Certificates[0])
			s := newStage(t, scheme+"://user:s3cr3t@"+got.addr)
			p := s.wants(exitUnavailable, "run", "--wait", "3", "n", "--", "touch", "ran")
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
			if said != "" {
				t.Errorf("a server that cannot prove who it is was told %q", said)
			}
		})
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
	if err != nil {
		t.Fatal(err)
	}
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
