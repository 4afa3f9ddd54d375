package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// path names the resource of a test's request.
func path(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// echo answers what it was sent, and under which token.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Echo", "yes")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s %s under %v", r.Method, body, fence.TokenFrom(r.Context()))
})

// ask sends a request to h, with these headers Fencing-Token.
func ask(h http.Handler, method, target, body string, tokens ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, tok := range tokens {
		r.Header.Add(fence.Header, tok)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	steps.Must(t, err)
	return string(b)
}

func TestHandlerRefusesStaleTokens(t *testing.T) {
	const before, now = "9007199254740992", "9007199254740993" // a float loses the last digit
	h := fence.Handler(echo, &fence.Gates{}, path, nil)
	for _, tok := range []string{before, before, now, now} {
		r := ask(h, "PUT", "/orders/42", "x", tok)
		if body := text(t, r); r.StatusCode != 201 || body != "PUT x under "+tok || r.Header.Get("Echo") != "yes" {
			t.Errorf("%s: %s %s", tok, r.Status, body)
		}
	}
	r := ask(h, "PUT", "/orders/42", "x", before)
	if r.StatusCode != 412 || r.Header.Get("Content-Type") != "application/problem+json" || r.Header.Get("Echo") != "" {
		t.Errorf("%s after %s: %s", before, now, r.Status)
	}
	steps.Same(t, "another resource", ask(h, "PUT", "/orders/43", "x", before).StatusCode, 201)
}

func TestWritesNeedATokenAndReadsNone(t *testing.T) {
	h := fence.Handler(echo, &fence.Gates{}, path, nil)
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "MOVE"} {
		steps.Same(t, method, ask(h, method, "/a", "").StatusCode, 428)
	}
	steps.Same(t, "a write with a token", ask(h, "PUT", "/a", "", "9").StatusCode, 201)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		for _, tokens := range [][]string{nil, {"7"}, {"x"}} {
			steps.Same(t, method, ask(h, method, "/a", "", tokens...).StatusCode, 201)
		}
	}
}

func TestResourceWithoutANameIsAMistakeOfTheProgram(t *testing.T) {
	var told error
	h := fence.Handler(echo, &fence.Gates{}, func(*http.Request) string { return "" },
		&fence.HandlerOptions{Failed: func(_ *http.Request, err error) { told = err }})
	if r := ask(h, "PUT", "/a", "", "7"); r.StatusCode != 500 || told == nil {
		t.Errorf("%s, %v", r.Status, told)
	}
}

// A client that stops in the middle of what it sends keeps nobody out.
func TestSlowClientKeepsNobodyOut(t *testing.T) {
	s := httptest.NewServer(fence.Handler(echo, &fence.Gates{}, path, nil))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	steps.Must(t, err)
	defer c.Close()
	// Its headers are there, and half of its body.
	fmt.Fprintf(c, "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 7\r\nContent-Length: 4\r\n\r\nla")
	write := func(tok fence.Token) error {
		client := http.Client{Transport: &fence.Transport{}}
		r, err := http.NewRequestWithContext(fence.WithToken(steps.Soon(t), tok), "PUT", s.URL+"/a", strings.NewReader("x"))
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return fence.CheckResponse(resp)
	}
	steps.Must(t, write(9))
	fmt.Fprint(c, "te")
	answer := make([]byte, 12)
	steps.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 412" {
		t.Errorf("the late half was answered %q, %v", answer, err)
	}
}

func TestBodyIsBounded(t *testing.T) {
	h := fence.Handler(echo, &fence.Gates{}, path, &fence.HandlerOptions{MaxBody: 10})
	steps.Same(t, "the longest body", ask(h, "PUT", "/a", "0123456789", "7").StatusCode, 201)
	if r := ask(h, "PUT", "/a", "0123456789x", "9"); r.StatusCode != 413 || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Error(r.Status)
	}
	steps.Same(t, "after one that was too long", ask(h, "PUT", "/a", "", "8").StatusCode, 201)
	h = fence.Handler(echo, &fence.Gates{}, path, nil)
	steps.Same(t, "a megabyte", ask(h, "PUT", "/a", strings.Repeat("x", 1<<20), "7").StatusCode, 201)
	steps.Same(t, "more than a megabyte", ask(h, "PUT", "/a", strings.Repeat("x", 1<<20+1), "7").StatusCode, 413)
}

// marks are Marks that treat what a handler returns.
type marks func(err error) error

func (m marks) Do(ctx context.Context, _ string, _ fence.Token, f func(context.Context) error) error {
	return m(f(ctx))
}

// An answer that says "done" must not leave before it is.
func TestAnswerIsHeldBackUntilTheWriteStands(t *testing.T) {
	var told error
	o := &fence.HandlerOptions{Failed: func(_ *http.Request, err error) { told = err }}
	broken := errors.New("commit failed: password=secret")
	r := ask(fence.Handler(echo, marks(func(error) error { return broken }), path, o), "PUT", "/a", "x", "7")
	if body := text(t, r); r.StatusCode != 503 || strings.Contains(body, "under 7") || strings.Contains(body, "secret") || told != broken ||
		r.Header.Get("Echo") != "" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%s %s, told %v", r.Status, body, told)
	}
	steps.Well(t, "that is neither stale nor without a token", fence.CheckResponse(r))
}

// What the handler refuses reaches the client as it is, and the marks as an error.
func TestRefusalOfTheHandlerIsAWriteThatDidNotHappen(t *testing.T) {
	for status, want := range map[int]bool{200: true, 204: true, 303: true, 400: false, 409: false, 412: false, 500: false} {
		var kept bool
		h := fence.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Mine", "yes")
			w.WriteHeader(status)
			w.WriteHeader(299) // only the first counts
		}), marks(func(err error) error { kept = err == nil; return err }), path, nil)
		r := ask(h, "PUT", "/a", "x", "7")
		if r.StatusCode != status || r.Header.Get("Mine") != "yes" || kept != want {
			t.Errorf("%d: %s, kept %v", status, r.Status, kept)
		}
		steps.Well(t, r.Status, fence.CheckResponse(r))
	}
}

func TestHandlerSpeaksAsNextDoes(t *testing.T) {
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Outer", "1")
			w.Header().Set("Gone", "1")
			next.ServeHTTP(w, r)
		})
	}
	h := outer(fence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		steps.Same(t, "next does not see what was set before", w.Header().Get("Outer"), "1")
		w.Header().Del("Gone")
		io.WriteString(w, "<html>")
		w.Header().Set("Late", "1") // as with net/http: too late
	}), &fence.Gates{}, path, nil))
	r := ask(h, "PUT", "/a", "", "7")
	if r.StatusCode != 200 || r.Header.Get("Outer") != "1" || r.Header.Get("Gone") != "" || r.Header.Get("Late") != "" ||
		text(t, r) != "<html>" {
		t.Errorf("%s %v", r.Status, r.Header)
	}
	// A handler that says nothing says 200.
	silent := fence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), &fence.Gates{}, path, nil)
	steps.Same(t, "a handler that says nothing", ask(silent, "PUT", "/a", "", "7").StatusCode, 200)
}

func TestTransportSendsTheTokenOfTheContext(t *testing.T) {
	var got atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got.Store(fmt.Sprint(r.Method, r.Header.Values("fencing-token")))
	}))
	defer s.Close()
	client := http.Client{Transport: &fence.Transport{}}
	for _, c := range []struct {
		method string
		token  fence.Token
		own    string // set by the caller
		want   string
	}{
		{"PUT", 1<<62 + 1, "", "PUT[4611686018427387905]"},
		{"PUT", 7, "9", "PUT[7]"},
		{"GET", 7, "", "GET[7]"},
		{"GET", 0, "", "GET[]"},
		{"GET", 0, "9", "GET[]"},
		{"HEAD", 0, "", "HEAD[]"},
	} {
		r, err := http.NewRequestWithContext(fence.WithToken(t.Context(), c.token), c.method, s.URL, nil)
		steps.Must(t, err)
		if c.own != "" {
			r.Header.Set(fence.Header, c.own)
		}
		resp, err := client.Do(r)
		steps.Must(t, err)
		resp.Body.Close()
		steps.Same(t, "the server got", got.Load(), any(c.want))
		steps.Same(t, "the caller's request was changed", r.Header.Get(fence.Header), c.own)
	}
}

func TestTransportSendsNoWriteWithoutAToken(t *testing.T) {
	base := roundTrip(func(*http.Request) (*http.Response, error) { t.Error("sent"); return nil, errors.New("sent") })
	client := http.Client{Transport: &fence.Transport{Base: base}}
	for _, ctx := range []context.Context{t.Context(), fence.WithToken(t.Context(), 0), fence.WithToken(t.Context(), -1)} {
		for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "MOVE"} {
			body := &closed{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(ctx, method, "http://x", body)
			steps.Must(t, err)
			steps.Is(t, method, steps.ErrOf(client.Do(r)), fence.ErrNoToken)
			steps.Same(t, method+": the body was closed", body.yes, true)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closed struct {
	io.Reader
	yes bool
}

func (c *closed) Close() error { c.yes = true; return nil }

func TestCheckResponseKnowsOurRefusals(t *testing.T) {
	h := fence.Handler(echo, &fence.Gates{}, path, nil)
	ask(h, "PUT", "/a", "", "4611686018427387905")
	r := ask(h, "PUT", "/a", "", "4611686018427387904")
	err := fence.CheckResponse(r)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "a", Token: 1 << 62, Seen: 1<<62 + 1}) {
		t.Errorf("got %v", err)
	}
	steps.Same(t, "the body is still there", strings.Contains(text(t, r), `"seen"`), true)
	for _, tokens := range [][]string{nil, {"x"}, {"1", "2"}} {
		if err := fence.CheckResponse(ask(h, "PUT", "/a", "", tokens...)); !errors.Is(err, fence.ErrNoToken) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v", tokens, err)
		}
	}
}

func TestCheckResponseLeavesOtherAnswersAlone(t *testing.T) {
	long := `{"type":"about:blank","detail":"` + strings.Repeat("x", 100<<10) + `"}`
	for _, c := range []struct {
		status      int
		media, body string
	}{
		{200, "application/problem+json", `{"type":"https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrStale"}`},
		{412, "text/plain", "If-Match failed"},
		{412, "application/json", `{"type":"https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrStale"}`},
		{412, "application/problem+json", `{"type":"https://example.com/etag"}`},
		{412, "application/problem+json; charset=utf-8", `{`},
		{400, "application/problem+json", long},
		{412, "", ""},
	} {
		r := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.media}}, Body: io.NopCloser(strings.NewReader(c.body))}
		steps.Well(t, c, fence.CheckResponse(r))
		steps.Same(t, "the body afterwards", text(t, r), c.body)
	}
}
