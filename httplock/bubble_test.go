package httplock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/httplock/internal/lines"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// world has Servers on one store, in virtual time.
type world struct {
	*testing.T
	store driver.Backend
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&world{t, memlock.New()}) })
}

// local is a Server that is called without a network.
type local struct {
	*world
	*httplock.Server
	client *fencelock.Client
	bearer string
}

// as is l for requests with a token.
func (l *local) as(bearer string) *local { return &local{l.world, l.Server, l.client, bearer} }

// placeKept is how long a claim keeps its place when its client has gone.
const placeKept = 5 * time.Second

func (w *world) server(o *httplock.Options) *local {
	w.Helper()
	client := testclient.New(w, w.store, &fencelock.Options{Owner: "server", TTL: placeKept})
	s, err := httplock.New(client, o)
	steps.Must(w, err)
	w.Cleanup(func() {
		s.Drain()
		synctest.Wait()
		steps.OK(w, client.Close())
	})
	return &local{w, s, client, ""}
}

// result is the answer to a request.
type result struct {
	answer
	status int
	header http.Header
}

func (r result) slug() string {
	_, slug, _ := strings.Cut(r.text("type"), "/problems/")
	return slug
}

// do sends a request and waits for its answer.
func (l *local) do(method, path, body string) result {
	return l.doUntil(l.Context(), method, path, body)
}

func (l *local) doUntil(ctx context.Context, method, path, body string) result {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	if l.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+l.bearer)
	}
	return l.serve(r)
}

func (l *local) serve(r *http.Request) result {
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	if w.Body.Len() > 0 { // else its client has gone
		steps.Same(l, "Cache-Control", w.Header().Get("Cache-Control"), "no-store")
	}
	a := answer{}
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			l.Errorf("%s: %v", w.Body, err)
		}
	} else {
		a["text"] = w.Body.String()
	}
	return result{a, w.Code, w.Header()}
}

// pending is a request that has not been answered yet.
type pending struct {
	cancel context.CancelFunc // closes the connection
	done   chan result
}

// begin sends a POST that waits.
func (l *local) begin(path, body string) *pending {
	p := l.start(path, body)
	synctest.Wait()
	return p
}

// start sends a POST, and does not wait until anything has happened.
func (l *local) start(path, body string) *pending {
	ctx, cancel := context.WithCancel(l.Context())
	p := &pending{cancel, make(chan result, 1)}
	go func() { p.done <- l.doUntil(ctx, http.MethodPost, path, body) }()
	return p
}

// wait returns the answer once everything that can happen now has happened.
func (p *pending) wait(t testing.TB) result {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-p.done:
		return r
	default:
		t.Fatal("the request is not answered")
		return result{}
	}
}

func (p *pending) stillWaits(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-p.done:
		t.Fatalf("the request is answered: %v", r)
	default:
	}
}

func (r result) is(t testing.TB, status int, slug string) result {
	t.Helper()
	if r.status != status || r.slug() != slug {
		t.Fatalf("status %d %q, want %d %q: %v", r.status, r.slug(), status, slug, r.answer)
	}
	return r
}

func (r result) ok(t testing.TB) result { t.Helper(); return r.is(t, 200, "") }

// acquire takes key, for a test whose subject is something else.
func (l *local) acquire(key string) result {
	l.Helper()
	return l.do("POST", "/v1/acquire", marshal(map[string]string{"key": key})).ok(l)
}

func (l *local) verb(verb string, of result) result {
	return l.do("POST", "/v1/"+verb, handleOf(of.answer))
}

// breaks ends the claim on k with a token. more are other members of the request.
func (l *local) breaks(token, more string) result {
	return l.do("POST", "/v1/break", fmt.Sprintf(`{"key":"k","token":%q,"reason":"release 7"%s}`, token, more))
}

// waiters is how many wait for key.
func (l *local) waiters(key string) int {
	l.Helper()
	line, err := l.client.Line(l.Context(), key)
	steps.Must(l, err)
	_, waiters := lines.Split(&line)
	return len(waiters)
}

// plain hides from a Client that a store can pass leases on.
type plain struct{ driver.Backend }
