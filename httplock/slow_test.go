package httplock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
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
