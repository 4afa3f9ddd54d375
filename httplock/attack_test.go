package httplock_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/httplock/internal/lines"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// hurriedSite is a site whose time limits of connections are short.
func hurriedSite(t *testing.T, limit time.Duration) (addr string) {
	t.Helper()
	client := testclient.New(t, memlock.New(), &fencelock.Options{TTL: placeKept})
	s, err := httplock.New(client, nil)
	steps.Must(t, err)
	httplock.SetBodyTimeout(t, limit)
	server := s.HTTPServer()
	if server.ReadHeaderTimeout != 5*time.Second || server.MaxHeaderBytes != 16<<10 || server.IdleTimeout == 0 {
		t.Errorf("the limits are %v, %d, %v", server.ReadHeaderTimeout, server.MaxHeaderBytes, server.IdleTimeout)
	}
	server.ReadHeaderTimeout = limit
	l, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(l)
	}()
	t.Cleanup(func() {
		s.Drain()
		server.Close()
		<-done
		client.Close()
	})
	return l.Addr().String()
}

// Some hundreds of connections that send a byte now and then are let go, and the server answers
// others meanwhile.
func TestSlowConnectionsAreLetGo(t *testing.T) {
	const each = 100
	addr := hurriedSite(t, 500*time.Millisecond)
	var all sync.WaitGroup
	for _, begin := range []string{
		"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", // a header that never ends
		"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{",
		"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{", // nobody reads this body
	} {
		for range each {
			all.Go(func() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				io.WriteString(c, begin)
				if _, err := io.Copy(io.Discard, c); err != nil && !isReset(err) {
					t.Errorf("a slow connection was not let go: %v", err)
				}
			})
		}
	}
	began := time.Now()
	res, err := http.Post("http://"+addr+"/v1/acquire", "application/json", strings.NewReader(`{"key":"k"}`))
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %v", res, err)
	}
	res.Body.Close()
	t.Logf("answered after %v", time.Since(began))
	all.Wait()
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }

func TestLargeBodyIsRefusedEarly(t *testing.T) {
	s := newSite(t, nil)
	for _, length := range []int64{100 << 20, -1} { // announced, and in chunks
		body := &endless{size: 100 << 20}
		r, err := http.NewRequest("POST", s.url+"/v1/acquire", body)
		steps.Must(t, err)
		r.ContentLength = length
		r.Header.Set("Content-Type", "application/json")
		res, err := s.http.Do(r)
		if err != nil { // closed while it was sent
			if !isReset(err) && !strings.Contains(err.Error(), "broken pipe") {
				t.Error(err)
			}
		} else {
			steps.Same(t, "status", res.StatusCode, 413)
			res.Body.Close()
		}
		if sent := body.sent.Load(); sent > 10<<20 {
			t.Errorf("%d bytes were taken", sent)
		}
	}
	just := `{"key":"k"` + strings.Repeat(" ", 64<<10-11) + `}`
	s.post(200, "/v1/acquire", just)
	s.problem(413, "too-large", "/v1/acquire", just+" ")
}

// endless is a body of many spaces.
type endless struct {
	size int64
	sent atomic.Int64
}

func (e *endless) Read(b []byte) (int, error) {
	n := int(min(int64(len(b)), e.size-e.sent.Load()))
	if n == 0 {
		return 0, io.EOF
	}
	copy(b, bytes.Repeat([]byte(" "), n))
	e.sent.Add(int64(n))
	return n, nil
}

func TestHeaderFloodIsRefused(t *testing.T) {
	addr := hurriedSite(t, 5*time.Second)
	for name, header := range map[string]string{
		"one": "X-Long: " + strings.Repeat("x", 64<<10) + "\r\n", "many": strings.Repeat("X-Many: x\r\n", 10_000),
	} {
		c, err := net.Dial("tcp", addr)
		steps.Must(t, err)
		c.SetDeadline(time.Now().Add(20 * time.Second))
		go io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		switch {
		case err != nil && isReset(err):
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case res.StatusCode != http.StatusRequestHeaderFieldsTooLarge:
			t.Errorf("%s: status %d", name, res.StatusCode)
		}
		c.Close()
	}
}

// A key is bytes, and no path, whatever it looks like.
func TestOddKeysAreKeysLikeOthers(t *testing.T) {
	s := newSite(t, nil)
	odd := []string{
		"../../etc/passwd", "..%2f..%2fetc", "%00", "a\x00b", "a/b", "//", ".", "a b", "a\nb", "<script>alert(1)</script>",
		"{}", `"`, `\`, "ключ", strings.Repeat("é", 128), "a", "A", "a ", "\ufeffa", "\u202ea", "�", "😀", "fencelock/ready",
	}
	handles := map[string]answer{}
	for _, key := range odd {
		a := s.post(200, "/v1/acquire", marshal(map[string]string{"key": key}))
		if a.text("key") != key {
			t.Errorf("%q is answered as %q", key, a.text("key"))
		}
		handles[key] = a
	}
	for _, key := range odd {
		line := s.get(200, "/v1/line?key="+escape(key))
		if line.text("key") != key || line.text("last_token") != handles[key].text("token") {
			t.Errorf("the line of %q is %v", key, line)
		}
		s.post(200, "/v1/release", handleOf(handles[key]))
	}
	// Go programs may use keys that are not UTF-8; they can be looked at.
	l, err := s.client.Lock(t.Context(), "\xff\xfe")
	steps.Must(t, err)
	defer l.Release(t.Context())
	if line := s.get(200, "/v1/line?key=%ff%fe"); line.text("key_b64") != "//4=" {
		t.Errorf("the line is %v", line)
	}
	for _, path := range []string{"/v1/../v1/lines", "/v1//lines", "/V1/lines", "/v1/lines/", "/v1/line%73x", "/.."} {
		if res, a := s.request("GET", path, ""); res.StatusCode != 404 {
			t.Errorf("%s: %d %v", path, res.StatusCode, a)
		}
	}
	if res, _ := s.request("PUT", "/v1/acquire", ""); res.StatusCode != 405 || res.Header.Get("Allow") != "POST" {
		t.Errorf("PUT: %d %v", res.StatusCode, res.Header)
	}
}

func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// The time of a comparison of secrets must not say how much of a token is right. Time cannot be
// measured reliably, so the code is looked at: only subtle compares hashes, and every line of
// the tokens is compared.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "auth.go", nil, 0)
	steps.Must(t, err)
	found := false
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "find" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				found = found || n.Sel.Name == "ConstantTimeCompare"
			case *ast.BranchStmt:
				t.Errorf("find stops early, at %s", n.Tok)
			case *ast.RangeStmt:
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						t.Errorf("find returns from within its loop: %v", r)
					}
					return true
				})
			}
			return true
		})
	}
	if !found {
		t.Error("find compares without package subtle")
	}
}

// A client that closes its connection while it waits leaves the line, over a real connection.
func TestClosedSocketLeavesTheLine(t *testing.T) {
	s := newSite(t, nil)
	h := s.post(200, "/v1/acquire", `{"key":"k"}`)
	addr := strings.TrimPrefix(s.url, "http://")
	c, err := net.Dial("tcp", addr)
	steps.Must(t, err)
	body := `{"key":"k","wait":"5m"}`
	fmt.Fprintf(c, "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	s.eventually("it waits", func() bool { return s.waiting("k") == 1 })
	c.Close()
	s.eventually("it has left", func() bool { return s.waiting("k") == 0 })
	s.post(200, "/v1/release", handleOf(h))
}

func (s *site) waiting(key string) int {
	s.Helper()
	l, err := s.client.Line(s.Context(), key)
	steps.Must(s, err)
	_, waiters := lines.Split(&l)
	return len(waiters)
}

// eventually asks again and again.
func (s *site) eventually(what string, is func() bool) {
	s.Helper()
	testserver.Eventually(s, time.Minute, what, is)
}
