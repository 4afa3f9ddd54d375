package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// storeURLs are the stores that the tests of the service run on.
func storeURLs(t *testing.T) map[string]string {
	return map[string]string{
		"Redis":  testserver.Redis(t).URL(),
		"SQLite": "sqlite:" + filepath.Join(t.TempDir(), "locks.db"),
	}
}

// service is a server of the HTTP API with a connection of its own to the store.
type service struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, store string) *service {
	t.Helper()
	opened, err := storeurl.Open(t.Context(), store)
	must(t, err)
	t.Cleanup(opened.Close)
	client := testclient.New(t, opened.Backend, nil)
	t.Cleanup(func() { _ = client.Close() })
	s, err := httplock.New(client, nil)
	must(t, err)
	return &service{t, testclient.Serve(t, s.HTTPServer(), s.Drain).URL}
}

// reply is the reply to a request.
type reply struct {
	status int
	body   map[string]any
}

func (r reply) text(name string) string {
	s, _ := r.body[name].(string)
	return s
}

func (s *service) post(path string, body map[string]any) (r reply) {
	raw, err := json.Marshal(body)
	if err != nil {
		s.t.Error(err)
		return r
	}
	res, err := http.Post(s.url+path, "application/json", bytes.NewReader(raw))
	return s.read(res, err)
}

func (s *service) read(res *http.Response, err error) (r reply) {
	if err == nil {
		defer res.Body.Close()
		r.status = res.StatusCode
		err = json.NewDecoder(res.Body).Decode(&r.body)
	}
	steps.OK(s.t, err)
	return r
}

// begin sends a request whose reply is waited for later.
func (s *service) begin(path string, body map[string]any) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- s.post(path, body) }()
	return c
}

// must wants a request to succeed.
func (s *service) must(path string, body map[string]any) reply {
	s.t.Helper()
	r := s.post(path, body)
	if r.status != http.StatusOK {
		s.t.Fatalf("%s %v: %d %v", path, body, r.status, r.body)
	}
	return r
}

// line is the line of a key: its holders and its waiting claims.
func (s *service) line(key string) (holders, waiters []any) {
	r := s.read(http.Get(s.url + "/v1/line?key=" + key))
	holders, _ = r.body["holders"].([]any)
	waiters, _ = r.body["waiters"].([]any)
	return holders, waiters
}

// waits waits until n claims wait for key.
func (s *service) waits(key string, n int) {
	eventually(s.t, fmt.Sprintf("%d claims wait for %s", n, key), func() bool {
		_, waiters := s.line(key)
		return len(waiters) == n
	})
}

// A client's connection to one server breaks unseen while it waits. It repeats the request at
// another server and is granted. The wait at the first server ends within the second in which
// that server has not heard of the grant.
func TestWaitThatEndsAtOneServerKeepsTheGrantFromAnother(t *testing.T) {
	for name, store := range storeURLs(t) {
		for _, before := range []string{"100ms", "200ms", "300ms"} {
			t.Run(name+"/"+before, func(t *testing.T) {
				t.Parallel()
				const wait = 1500 * time.Millisecond
				early, _ := time.ParseDuration(before)
				first, second := serve(t, store), serve(t, store)
				key := "repeated-" + before
				wish := func(id string, wait time.Duration) map[string]any {
					return map[string]any{"key": key, "request_id": id, "wait": wait.String(), "ttl": "10m"}
				}
				holder := second.must("/v1/acquire", wish("the-holder", 0))

				waitEnds := time.Now().Add(wait)
				unseen := first.begin("/v1/acquire", wish("the-client", wait))
				repeated := second.begin("/v1/acquire", wish("the-client", httplock.MaxWait))
				second.waits(key, 1)
				next := second.begin("/v1/acquire", wish("the-next-one", httplock.MaxWait))
				second.waits(key, 2)
				<-time.After(time.Until(waitEnds) - early) // real time: the release comes just before the wait ends
				second.must("/v1/release", map[string]any{"handle": holder.body["handle"]})

				granted, ended := <-repeated, <-unseen
				if granted.status != http.StatusOK {
					t.Fatalf("the repeated request: %d %v", granted.status, granted.body)
				}
				if ended.status == http.StatusOK && ended.text("token") != granted.text("token") {
					t.Errorf("the first request has token %s, the repeated one %s", ended.text("token"), granted.text("token"))
				}
				holders, _ := second.line(key)
				if len(holders) != 1 || holders[0].(map[string]any)["token"] != granted.body["token"] {
					t.Errorf("the client has token %s, and the holders are %v", granted.text("token"), holders)
				}
				select {
				case r := <-next:
					t.Errorf("the next client got the lock while the first had it: %d %v", r.status, r.body)
				default:
				}
				second.must("/v1/release", map[string]any{"handle": granted.body["handle"]})
				if r := <-next; r.status != http.StatusOK {
					t.Errorf("the next client: %d %v", r.status, r.body)
				}
			})
		}
	}
}

// loseFirstAnswer is a proxy before s that does the first request for path and loses the answer.
func (s *service) loseFirstAnswer(path string) string {
	target, err := url.Parse(s.url)
	must(s.t, err)
	var lost atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || !lost.CompareAndSwap(false, true) {
			forward.ServeHTTP(w, r)
			return
		}
		forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	s.t.Cleanup(proxy.Close)
	s.t.Cleanup(func() {
		if !lost.Load() {
			s.t.Errorf("no answer to %s was lost", path)
		}
	})
	return proxy.URL
}

// An operator breaks a lock with the Python client. The lock was taken with a lock-delay of an
// hour. The answer to the break is lost, and the client sends the break again.
func TestRepeatedBreakKeepsTheLockDelay(t *testing.T) {
	const breaks = `
import sys
from fencelock import Client
Client(sys.argv[1]).break_claim(sys.argv[2], int(sys.argv[3]), "it hangs")
`
	for name, store := range storeURLs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, store)
			l, err := open(t, store).Lock(t.Context(), "nightly", fencelock.LockDelay(time.Hour))
			must(t, err)
			operator := exec.Command("python3", "-c", breaks, s.loseFirstAnswer("/v1/break"), "nightly", l.Token().String())
			operator.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "..", "clients", "python"))
			if out, err := operator.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			next := map[string]any{"key": "nightly", "request_id": "the-next-one"}
			if r := s.post("/v1/acquire", next); r.status != http.StatusConflict {
				t.Errorf("the next client, after a break with a lock-delay: %d %v", r.status, r.body)
			}
			holders, _ := s.line("nightly")
			if len(holders) != 1 {
				t.Fatalf("the holders are %v", holders)
			}
			if h := holders[0].(map[string]any); h["lingering"] != true || h["left_ms"].(float64) < 30*60_000 {
				t.Errorf("the holder is %v; want it lingering for nearly an hour", h)
			}
			// Another operator, who does not know of the first, asks for a shorter delay.
			again := func(delay string) {
				s.must("/v1/break", map[string]any{
					"key": "nightly", "token": l.Token().String(), "reason": "it has ended", "delay": delay,
				})
			}
			again("5s")
			holders, _ = s.line("nightly")
			if len(holders) != 1 || holders[0].(map[string]any)["left_ms"].(float64) < 30*60_000 {
				t.Errorf("after a break with a delay of 5s the holders are %v", holders)
			}
			again("0s")
			next["request_id"] = "the-next-two"
			s.must("/v1/acquire", next)
		})
	}
}
