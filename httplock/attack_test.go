package httplock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// pipes is a net.Listener of connections whose deadlines are in virtual time.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// dial connects, and sends the beginning of a request.
func (p *pipes) dial(begin string) net.Conn {
	c, server := net.Pipe()
	p.accept <- server
	if begin != "" { // a pipe tells of an empty write
		go io.WriteString(c, begin)
	}
	return c
}

// listen serves l by s until the test ends.
func (l *local) listen(s *http.Server) *pipes {
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	go s.Serve(p)
	l.Cleanup(func() {
		l.Drain()
		s.Close()
		time.Sleep(2 * time.Second) // net/http closes some connections half a second later
	})
	return p
}

// dialer returns a client of what p serves, by the protocols of its server.
func (l *local) dialer(p *pipes, protocols *http.Protocols) *http.Client {
	t := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return p.dial(""), nil
	}}
	l.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// host ends the line of a request, and begins its header.
const host = " HTTP/1.1\r\nHost: localhost\r\n"

// Connections that send a byte a second are let go when their time is over.
func TestSlowConnectionsAreLetGo(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		p := s.listen(s.HTTPServer())
		var all sync.WaitGroup
		for request, limit := range map[string]time.Duration{
			"/v1/acquire" + host + "X-Slow: ": 5 * time.Second, // a header that never ends
			"/v1/acquire" + host + "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{": 10 * time.Second,
			"/nothing" + host + "Content-Length: 20\r\n\r\n{":                                      10 * time.Second, // nobody reads this body
		} {
			all.Go(func() {
				begun, c := time.Now(), p.dial("POST "+request)
				defer c.Close()
				go func() {
					for err := error(nil); err == nil; _, err = io.WriteString(c, " ") {
						time.Sleep(time.Second)
					}
				}()
				io.Copy(io.Discard, c)
				if life := time.Since(begun); life < limit || life > limit+time.Second {
					t.Errorf("%q lived for %v; want %v", request, life, limit)
				}
			})
		}
		all.Wait()
	})
}

func TestLargeBodyIsRefusedEarly(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		client := s.dialer(s.listen(s.HTTPServer()), nil)
		for _, length := range []int64{100 << 20, -1} { // announced, and in chunks
			body := &endless{}
			r, err := http.NewRequest("POST", "http://localhost/v1/acquire", body)
			steps.Must(t, err)
			r.ContentLength = length
			r.Header.Set("Content-Type", "application/json")
			res, err := client.Do(r)
			steps.Must(t, err)
			res.Body.Close()
			steps.Same(t, "status", res.StatusCode, 413)
			if sent := body.sent.Load(); sent > 1<<20 {
				t.Errorf("%d bytes were taken", sent)
			}
		}
		just := `{"key":"k"` + strings.Repeat(" ", 64<<10-11) + `}`
		s.do("POST", "/v1/acquire", just).ok(t)
		s.do("POST", "/v1/acquire", just+" ").is(t, 413, "too-large")
	})
}

// endless is a body of 100 MB.
type endless struct{ sent atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.sent.Add(int64(len(b))) > 100<<20 {
		return 0, io.EOF
	}
	return len(b), nil
}

func TestHeaderFloodIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		p := s.listen(s.HTTPServer())
		for _, header := range []string{"X-Long: " + long(64<<10) + "\r\n", strings.Repeat("X-Many: x\r\n", 10_000)} {
			c := p.dial("GET /healthz" + host + header + "\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			steps.Must(t, err)
			steps.Same(t, "status", res.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
			c.Close()
		}
	})
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
			line := s.do("GET", "/v1/line?key="+url.QueryEscape(key), "").ok(t)
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

// The time of a comparison of secrets must not say how much of a token is right. Time cannot be
// measured reliably, so the code is looked at: find compares with every line, by package subtle.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	source, err := os.ReadFile("auth.go")
	steps.Must(t, err)
	_, find, _ := strings.Cut(string(source), ") find(")
	find, _, _ = strings.Cut(find, "\n}\n")
	loop, _, _ := strings.Cut(find, "\n\treturn ")
	early := regexp.MustCompile("return|break|continue|goto").FindString(loop)
	if early != "" || !strings.Contains(loop, "subtle.ConstantTimeCompare(p.hash, ") {
		t.Errorf("find stops early, or compares without package subtle:\n%s", find)
	}
}

// A client that closes its connection while it waits leaves the line, as net/http tells of it.
func TestClosedSocketLeavesTheLine(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		h := s.acquire("k")
		body := `{"key":"k","wait":"5m"}`
		c := s.listen(s.HTTPServer()).dial(fmt.Sprint("POST /v1/acquire"+host+
			"Content-Type: application/json\r\nContent-Length: ", len(body), "\r\n\r\n", body))
		synctest.Wait()
		steps.Same(t, "claims that wait", s.waiters("k"), 1)
		c.Close()
		time.Sleep(placeKept)
		steps.Same(t, "claims that wait after the connection was closed", s.waiters("k"), 0)
		s.verb("release", h).ok(t)
	})
}

// crowd makes n lines that have the longest notes.
func (l *local) crowd(n int) {
	l.Helper()
	note := fencelock.Note(strings.Repeat("n", 1000))
	for i := range n {
		testclient.Lock(l, l.client, fmt.Sprintf("line/%d", i), note, fencelock.TTL(time.Hour))
	}
}

// heap is how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Eight clients ask for everything, and read nothing. A client that reads gets about 8 MiB at most.
func TestReadersWhoDoNotReadAreLetGo(t *testing.T) {
	inWorld(t, func(w *world) {
		const readers = 8
		s := w.server(nil)
		s.crowd(9000)
		all := s.do("GET", "/v1/lines?limit=10000", "").ok(t)
		lines := all.answer["lines"].([]any)
		if size := len(marshal(lines)); size > 10<<20 || len(lines) < 4000 || all.answer["truncated"] != true {
			t.Errorf("%d lines of %d bytes in all, truncated: %v", len(lines), size, all.answer["truncated"])
		}
		all, lines = result{}, nil
		var under atomic.Int64
		server := s.HTTPServer()
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			under.Add(1)
			defer under.Add(-1)
			s.ServeHTTP(w, r)
		})
		p := s.listen(server)
		for _, path := range []string{"/v1/lines?limit=10000", "/v1/events"} {
			before := heap()
			for range readers {
				p.dial("GET " + path + host + "\r\n")
			}
			synctest.Wait()
			steps.Same(t, path+": answers under way", under.Load(), readers)
			if grown := heap() - before; grown > readers*(8<<20) {
				t.Errorf("%s: %d readers hold %d MB", path, readers, grown>>20)
			}
			time.Sleep(11 * time.Second) // a reader may take ten for each chunk
			steps.Same(t, path+": answers under way, later", under.Load(), 0)
		}
	})
}

// A stream whose last write was long ago is not reset, and neither is a long poll.
func TestQuietStreamsOutliveTheirDeadlines(t *testing.T) {
	for _, two := range []bool{false, true} {
		inWorld(t, func(w *world) {
			s := w.server(nil)
			server := s.HTTPServer()
			server.Protocols = &http.Protocols{}
			server.Protocols.SetHTTP1(!two)
			server.Protocols.SetUnencryptedHTTP2(two)
			client := s.dialer(s.listen(server), server.Protocols)
			get := func(path string) io.Reader {
				res, err := client.Get("http://localhost" + path)
				steps.Must(w, err)
				w.Cleanup(func() { res.Body.Close() })
				return res.Body
			}
			io.Copy(io.Discard, get("/v1/line?key=k"))
			events := bufio.NewScanner(get("/v1/events"))
			for i := range 3 {
				time.Sleep(11 * time.Second) // a write may take ten
				key, seen := s.acquire(fmt.Sprintf("quiet/%d", i)).text("key"), false
				for !seen && events.Scan() {
					seen = strings.Contains(events.Text(), key) && strings.Contains(events.Text(), `"holders"`)
				}
				if !seen {
					w.Fatalf("HTTP/2 %v: the stream has ended: %v", two, events.Err())
				}
			}
			res, err := client.Post("http://localhost/v1/acquire", "application/json", strings.NewReader(`{"key":"quiet/2","wait":"20s"}`))
			steps.Must(w, err)
			res.Body.Close()
			steps.Same(w, "status after a wait of twenty seconds", res.StatusCode, http.StatusConflict)
		})
	}
}

// A client that opens a new connection for a renewal may not reach the server in time: Node.js looks up
// the name of its host in a pool of threads that the program may fill.
func TestAnswersSayHowLongAConnectionIsKept(t *testing.T) {
	for _, want := range []string{"timeout=120", ""} {
		inWorld(t, func(w *world) {
			s := w.server(nil)
			own := s.HTTPServer()
			if want == "" {
				own.IdleTimeout = 0
			}
			res, err := s.dialer(s.listen(own), nil).Get("http://localhost/v1/line?key=k")
			steps.Must(w, err)
			res.Body.Close()
			steps.Same(w, "Keep-Alive", res.Header.Get("Keep-Alive"), want)
		})
	}
}
