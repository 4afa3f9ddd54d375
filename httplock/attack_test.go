package httplock_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
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
	s, url := listening(t)
	for _, length := range []int64{100 << 20, -1} { // announced, and in chunks
		body := &endless{size: 100 << 20}
		r, err := http.NewRequest("POST", url+"/v1/acquire", body)
		steps.Must(t, err)
		r.ContentLength = length
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
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
	s.do("POST", "/v1/acquire", just).ok(t)
	s.do("POST", "/v1/acquire", just+" ").is(t, 413, "too-large")
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
	inWorld(t, func(w *world) {
		s := w.server(nil)
		held := map[string]result{}
		for _, key := range []string{
			"../../etc/passwd", "..%2f..%2fetc", "%00", "a\x00b", "a/b", "//", ".", "a b", "a\nb", "<script>alert(1)</script>",
			"{}", `"`, `\`, "ключ", strings.Repeat("é", 128), "a", "A", "a ", "\ufeffa", "\u202ea", "�", "😀", "fencelock/ready",
		} {
			held[key] = s.acquire(key)
			steps.Same(t, "the key of the answer", held[key].text("key"), key)
		}
		for key, a := range held {
			line := s.do("GET", "/v1/line?key="+escape(key), "").ok(t)
			if line.text("key") != key || line.text("last_token") != a.text("token") {
				t.Errorf("the line of %q is %v", key, line.answer)
			}
			s.verb("release", a).ok(t)
		}
		// Go programs may use keys that are not UTF-8; they can be looked at.
		l, err := s.client.Lock(t.Context(), "\xff\xfe")
		steps.Must(t, err)
		steps.Same(t, "the key in base64", s.do("GET", "/v1/line?key=%ff%fe", "").ok(t).text("key_b64"), "//4=")
		steps.OK(t, l.Release(t.Context()))
		for _, path := range []string{"/v1/../v1/lines", "/v1//lines", "/V1/lines", "/v1/lines/", "/v1/line%73x", "/.."} {
			steps.Same(t, path+": status", s.do("GET", path, "").status, 404)
		}
		if r := s.do("PUT", "/v1/acquire", ""); r.status != 405 || r.header.Get("Allow") != "POST" {
			t.Errorf("PUT: %d %v", r.status, r.header)
		}
	})
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
	s, url := listening(t)
	h := s.acquire("k")
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	steps.Must(t, err)
	body := `{"key":"k","wait":"5m"}`
	fmt.Fprintf(c, "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	waitUntil(t, "it waits", func() bool { return s.waiters("k") == 1 })
	c.Close()
	waitUntil(t, "it has left", func() bool { return s.waiters("k") == 0 })
	s.verb("release", h).ok(t)
}

// crowded returns a Client of a store with n lines that have the longest notes.
func crowded(t *testing.T, n int) *fencelock.Client {
	t.Helper()
	locks, err := fencelock.New(memlock.New(), nil)
	steps.Must(t, err)
	t.Cleanup(func() { locks.Close() })
	note := strings.Repeat("n", 1000)
	for i := range n {
		_, err := locks.Lock(t.Context(), fmt.Sprintf("line/%d", i), fencelock.Note(note), fencelock.TTL(time.Hour))
		steps.Must(t, err)
	}
	return locks
}

// serveCounted serves locks, and counts the requests that are under way.
func serveCounted(t *testing.T, locks *fencelock.Client, begin func(*httptest.Server)) (string, *http.Client, *atomic.Int64) {
	t.Helper()
	s, err := httplock.New(locks, &httplock.Options{Hosts: []string{"*"}})
	steps.Must(t, err)
	under := &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		under.Add(1)
		defer under.Add(-1)
		s.ServeHTTP(w, r)
	}))
	begin(server)
	t.Cleanup(func() {
		s.Drain()
		server.Close()
	})
	return server.URL, server.Client(), under
}

// Eight clients ask for everything, and read nothing.
func TestReadersWhoDoNotReadAreLetGo(t *testing.T) {
	const readers = 8
	httplock.SetWriteTimeout(t, 200*time.Millisecond)
	locks := crowded(t, 9000)
	url, _, under := serveCounted(t, locks, (*httptest.Server).Start)
	var before, during runtime.MemStats
	for _, path := range []string{"/v1/lines?limit=10000", "/v1/events"} {
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range readers {
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			steps.Must(t, err)
			t.Cleanup(func() { c.Close() })
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		}
		waitUntil(t, "all are being answered", func() bool { return under.Load() == readers })
		runtime.GC()
		runtime.ReadMemStats(&during)
		if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > readers*(8<<20) {
			t.Errorf("%s: %d readers hold %d MB", path, readers, grown>>20)
		}
		waitUntil(t, "the readers are let go", func() bool { return under.Load() == 0 })
	}
}

func TestLinesAreBoundedByTheirSize(t *testing.T) {
	url, client, _ := serveCounted(t, crowded(t, 9000), (*httptest.Server).Start)
	res, err := client.Get(url + "/v1/lines?limit=10000")
	steps.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	steps.Must(t, err)
	if len(text) > 10<<20 || !strings.HasSuffix(string(text), "],\"truncated\":true}\n") {
		t.Errorf("%d bytes that end with %q", len(text), text[len(text)-40:])
	}
	if n := strings.Count(string(text), `"key":`); n < 4000 || n >= 9000 {
		t.Errorf("%d lines", n)
	}
}

// A stream whose last write was long ago is not reset, and neither is a long poll.
func TestQuietStreamsOutliveTheirDeadlines(t *testing.T) {
	httplock.SetWriteTimeout(t, 200*time.Millisecond)
	for name, begin := range map[string]func(*httptest.Server){
		"HTTP/1": (*httptest.Server).Start,
		"HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			locks := crowded(t, 1)
			url, client, _ := serveCounted(t, locks, begin)
			get := func(path string) *http.Response {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				t.Cleanup(cancel)
				r, err := http.NewRequestWithContext(ctx, "GET", url+path, nil)
				steps.Must(t, err)
				res, err := client.Do(r)
				steps.Must(t, err)
				t.Cleanup(func() { res.Body.Close() })
				return res
			}
			io.Copy(io.Discard, get("/v1/line?key=k").Body)
			events := bufio.NewScanner(get("/v1/events").Body)
			for i := range 3 { // each is seen by another look, a second later
				l, err := locks.Lock(t.Context(), fmt.Sprintf("quiet/%d", i))
				steps.Must(t, err)
				seen := false
				for !seen && events.Scan() {
					seen = strings.Contains(events.Text(), l.Key()) && strings.Contains(events.Text(), `"holders"`)
				}
				if !seen {
					t.Fatalf("the stream has ended: %v", events.Err())
				}
			}
			res, err := client.Post(url+"/v1/acquire", "application/json", strings.NewReader(`{"key":"quiet/0","wait":"1s"}`))
			if err != nil || res.StatusCode != http.StatusConflict {
				t.Errorf("a wait of a second: %v %v", res, err)
			}
			if err == nil {
				res.Body.Close()
			}
		})
	}
}

func waitUntil(t *testing.T, what string, f func() bool) {
	t.Helper()
	testserver.Eventually(t, time.Minute, what, f)
}

// A client that opens a new connection for a renewal may not reach the server in time: Node.js looks up
// the name of its host in a pool of threads that the program may fill.
func TestAnswersSayHowLongAConnectionIsKept(t *testing.T) {
	locks, err := fencelock.New(memlock.New(), nil)
	steps.Must(t, err)
	t.Cleanup(func() { locks.Close() })
	for _, want := range []string{"timeout=120", ""} {
		s, err := httplock.New(locks, nil)
		steps.Must(t, err)
		own := s.HTTPServer()
		if want == "" {
			own.IdleTimeout = 0
		}
		url := testclient.Serve(t, own, s.Drain).URL
		res, err := http.Post(url+"/v1/acquire", "application/json", strings.NewReader(`{"key":"k"}`))
		steps.Must(t, err)
		res.Body.Close()
		if got := res.Header.Get("Keep-Alive"); got != want {
			t.Errorf("the server keeps a connection for %v, and says %q; want %q", own.IdleTimeout, got, want)
		}
	}
}
