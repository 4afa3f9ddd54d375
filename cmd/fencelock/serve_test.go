//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serving is a fencelock serve and one who asks it.
type serving struct {
	*stage
	proc  *proc
	url   string
	http  *http.Client
	token string
}

func (s *stage) serves(args ...string) *serving {
	s.t.Helper()
	p := s.start("fencelock", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	v := &serving{stage: s, proc: p, http: &http.Client{}}
	eventually(s.t, "it serves", func() bool {
		_, at, ok := strings.Cut(p.err.String(), " at http")
		if ok {
			v.url = "http" + strings.TrimSpace(at)
		}
		return ok && strings.HasSuffix(at, "\n")
	})
	return v
}

// post returns the status and the body of an answer.
func (v *serving) post(path string, body any) (int, map[string]any) {
	v.t.Helper()
	b, err := json.Marshal(body)
	must(v.t, err)
	r, err := http.NewRequest(http.MethodPost, v.url+path, strings.NewReader(string(b)))
	must(v.t, err)
	r.Header.Set("Content-Type", "application/json")
	if v.token != "" {
		r.Header.Set("Authorization", "Bearer "+v.token)
	}
	res, err := v.http.Do(r)
	if err != nil {
		return 0, map[string]any{"error": err.Error()}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	must(v.t, err)
	answer := map[string]any{}
	if err := json.Unmarshal(raw, &answer); err != nil {
		v.t.Errorf("%s: %v", raw, err)
	}
	return res.StatusCode, answer
}

func (v *serving) want(status int, path string, body any) map[string]any {
	v.t.Helper()
	got, answer := v.post(path, body)
	if got != status {
		v.t.Errorf("%s %v: %d %v, want %d", path, body, got, answer, status)
	}
	return answer
}

type object = map[string]any

// One who asks over HTTP and one in the shell exclude each other, and SIGTERM sends those who
// wait elsewhere, without losing their places.
func TestServeExcludesTheShellAndDrains(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	v, other := s.serves(), s.serves()
	h := v.want(200, "/v1/acquire", object{"key": "n", "owner": "python"})
	s.wants(exitNotAcquired, "run", "-n", "n", "--", "true").wantLine("held by python")

	wish := object{"key": "n", "wait": "5m", "request_id": "wish-of-mine"}
	first := make(chan object, 1)
	go func() { first <- v.want(503, "/v1/acquire", wish) }()
	eventually(t, "it waits", func() bool { return strings.Contains(s.must("ls"), "waits #1") })
	last := s.waits(2)
	must(t, v.proc.cmd.Process.Signal(syscall.SIGTERM))
	if answer := <-first; answer["type"] != "/problems/come-again" {
		t.Errorf("SIGTERM answers %v", answer)
	}
	again := make(chan object, 1)
	go func() { again <- other.want(200, "/v1/acquire", wish) }()
	v.proc.wantExit(0)
	other.want(200, "/v1/release", object{"handle": h["handle"]})
	got := <-again
	if last.ended() {
		t.Error("the shell was granted before the one who came again")
	}
	other.want(200, "/v1/release", object{"handle": got["handle"]})
	last.wantExit(0)
	if audit := v.proc.out.String(); !strings.Contains(audit, `"what":"acquire","key":"n"`) {
		t.Errorf("the audit log is %q", audit)
	}
	must(t, other.proc.cmd.Process.Signal(syscall.SIGINT))
	other.proc.wantExit(0)
}

// certificate writes NAME.pem and NAME.key: a certificate for one use, of an authority of its own.
func (s *stage) certificate(name string, use x509.ExtKeyUsage) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(s.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(s.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(s.t, err)
	s.write(name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

// With TLS: a bearer token, a certificate, and neither; SIGHUP reads tokens again.
func TestServeKnowsItsClientsByTokenAndCertificate(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.certificate("server", x509.ExtKeyUsageServerAuth)
	s.certificate("web", x509.ExtKeyUsageClientAuth)
	made := s.wants(0, "serve", "token", "ci", "--prefix", "*")
	_, token, _ := strings.Cut(strings.TrimSpace(made.err.String()), "once: ")
	s.write("tokens", made.out.String()+"web - acquire web/\n")
	v := s.serves("--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "web.pem", "--tokens", "tokens")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.read("server.pem")))
	use := func(certs ...tls.Certificate) {
		v.http.CloseIdleConnections()
		v.http = &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}, ForceAttemptHTTP2: true,
		}}
	}
	defer func() { v.http.CloseIdleConnections() }()
	use()
	v.want(401, "/v1/acquire", object{"key": "web/a"})
	v.token = token
	v.want(200, "/v1/acquire", object{"key": "n"})
	v.token = ""
	client, err := tls.LoadX509KeyPair(s.path("web.pem"), s.path("web.key"))
	must(t, err)
	use(client)
	v.want(200, "/v1/acquire", object{"key": "web/a"})
	v.want(403, "/v1/acquire", object{"key": "other"})

	hangUp := func(says string) {
		must(t, v.proc.cmd.Process.Signal(syscall.SIGHUP))
		eventually(t, says, func() bool { return strings.Contains(v.proc.err.String(), says) })
	}
	use()
	v.token = token
	s.write("tokens", "nonsense\n")
	hangUp("what was read before stays in force")
	v.want(200, "/v1/acquire", object{"key": "n2"})
	s.write("tokens", "web - acquire web/\n")
	hangUp("were read again")
	v.want(401, "/v1/acquire", object{"key": "n3"})
	must(t, v.proc.cmd.Process.Signal(syscall.SIGTERM))
	v.proc.wantExit(0)
}

// The link that console prints lets in one visitor.
func TestConsolePrintsALink(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.holds(longRun)
	p := s.start("fencelock", "console")
	eventually(t, "it prints its link", func() bool { return strings.HasSuffix(p.out.String(), "\n") })
	link := strings.TrimSpace(p.out.String())
	visit := func(jar http.CookieJar) (int, string) {
		t.Helper()
		answer, err := (&http.Client{Jar: jar}).Get(link)
		must(t, err)
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer.StatusCode, string(page)
	}
	jar, err := cookiejar.New(nil)
	must(t, err)
	if status, page := visit(jar); status != 200 || !strings.Contains(page, "1 key in use") {
		t.Errorf("the first visitor gets %d:\n%s", status, page)
	}
	if status, page := visit(nil); status != 403 || !strings.Contains(page, "This link has been used") {
		t.Errorf("the second visitor gets %d:\n%s", status, page)
	}
	p.signal("INT")
	p.wantExit(0)
}

func TestConsoleIsForThisHostOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, "memory:")
	for _, listen := range []string{":0", "0.0.0.0:0", "192.0.2.1:0", "nonsense"} {
		p := s.start("fencelock", "console", "--listen", listen)
		p.wantExit(exitUsage)
	}
}
