package httplock_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// site is a Server under test, on a store of its own.
type site struct {
	*testing.T
	server *httplock.Server
	client *fencelock.Client
	url    string
	token  string // sent as the bearer
	http   *http.Client
}

func newSite(t *testing.T, o *httplock.Options) *site {
	t.Helper()
	return newSiteOn(t, memlock.New(), o)
}

func newSiteOn(t *testing.T, b driver.Backend, o *httplock.Options) *site {
	t.Helper()
	client := testclient.New(t, b, &fencelock.Options{Owner: "server", TTL: placeKept})
	s, err := httplock.New(client, o)
	steps.Must(t, err)
	t.Cleanup(func() {
		steps.OK(t, client.Close())
	})
	web := testclient.Serve(t, s.HTTPServer(), s.Drain)
	return &site{T: t, server: s, client: client, url: web.URL, http: web.Client()}
}

// answer is an answer as JSON.
type answer map[string]any

func (a answer) text(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a answer) number(name string) float64 {
	n, _ := a[name].(float64)
	return n
}

// request sends one request and returns its status and body.
func (s *site) request(method, path, body string) (*http.Response, answer) {
	s.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	steps.Must(s, err)
	return s.send(r)
}

func (s *site) send(r *http.Request) (*http.Response, answer) {
	s.Helper()
	if r.Method == http.MethodPost && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.http.Do(r)
	steps.Must(s, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	steps.Must(s, err)
	a := answer{}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		d := json.NewDecoder(bytes.NewReader(raw))
		if err := d.Decode(&a); err != nil {
			s.Fatalf("%s: %v", raw, err)
		}
	} else {
		a["text"] = string(raw)
	}
	return res, a
}

// post wants a status from a POST.
func (s *site) post(status int, path, body string) answer {
	s.Helper()
	res, a := s.request(http.MethodPost, path, body)
	s.want(res, a, status)
	return a
}

func (s *site) get(status int, path string) answer {
	s.Helper()
	res, a := s.request(http.MethodGet, path, "")
	s.want(res, a, status)
	return a
}

func (s *site) want(res *http.Response, a answer, status int) {
	s.Helper()
	if res.StatusCode != status {
		s.Errorf("%s %s: status %d, want %d: %v", res.Request.Method, res.Request.URL.Path, res.StatusCode, status, a)
	}
	steps.Same(s, "Cache-Control", res.Header.Get("Cache-Control"), "no-store")
	if status >= 400 && !strings.HasPrefix(a.text("type"), "/problems/") {
		s.Errorf("the problem has type %q: %v", a.text("type"), a)
	}
}

// problem wants a problem of a type from a POST.
func (s *site) problem(status int, slug, path, body string) answer {
	s.Helper()
	a := s.post(status, path, body)
	if got := a.text("type"); got != "/problems/"+slug {
		s.Errorf("POST %s: problem %q, want %s: %v", path, got, slug, a)
	}
	return a
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func handleOf(a answer) string { return marshal(map[string]any{"handle": a["handle"]}) }

// checkTaken checks what others see of the lock nightly that alice@ci holds under a.
func checkTaken(t *testing.T, s *site, a answer) {
	t.Helper()
	if line := s.get(200, "/v1/line?key=nightly"); !strings.Contains(marshal(line), `"owner":"alice@ci"`) ||
		!strings.Contains(marshal(line), `"note":"deploy"`) || line.text("last_token") != a.text("token") {
		t.Errorf("the line is %v", line)
	}
	held := s.problem(409, "not-acquired", "/v1/acquire", `{"key":"nightly"}`)
	if holders, _ := held["holders"].([]any); len(holders) != 1 || held.number("ahead") != 1 {
		t.Errorf("the refusal is %v", held)
	}
}

func TestAcquireRenewCheckRelease(t *testing.T) {
	s := newSite(t, nil)
	a := s.post(200, "/v1/acquire", `{"key":"nightly","ttl":"20s","note":"deploy","owner":"alice@ci"}`)
	if a.text("key") != "nightly" || a.text("kind") != "exclusive" || a.number("ttl_ms") != 20_000 ||
		a.number("left_ms") < 19_000 || a.number("left_ms") > 19_800 || len(a.text("request_id")) < 8 {
		t.Errorf("the grant is %v", a)
	}
	checkTaken(t, s, a)
	if r := s.post(200, "/v1/renew", marshal(map[string]any{"handle": a["handle"], "ttl": "60s"})); r.number("left_ms") < 59_000 {
		t.Errorf("renewed: %v", r)
	}
	if c := s.post(200, "/v1/check", handleOf(a)); c.number("left_ms") < 59_000 || c["held"] != true ||
		c.text("token") != a.text("token") {
		t.Errorf("checked: %v", c)
	}
	if r := s.post(200, "/v1/release", handleOf(a)); r["released"] != true {
		t.Errorf("released: %v", r)
	}
	for _, verb := range []string{"renew", "check", "release"} {
		if p := s.problem(410, "lost", "/v1/"+verb, handleOf(a)); p.text("reason") == "" || p.text("key") != "nightly" {
			t.Errorf("%s of a released handle: %v", verb, p)
		}
	}
}

// The document has every route and every type of problem, and no others. That answers are as
// it says is tested by verify/serve.
func TestDocumentHasEveryRouteAndProblem(t *testing.T) {
	s := newSite(t, nil)
	doc := s.get(200, "/v1/openapi.json")
	paths, _ := doc["paths"].(map[string]any)
	routes := s.server.Paths()
	routes["/problems/{slug}"] = "GET"
	for path, method := range routes {
		item, _ := paths[path].(map[string]any)
		if _, ok := item[strings.ToLower(method)]; !ok || len(item) != 1 {
			t.Errorf("%s %s is not in the document alone: %v", method, path, item)
		}
	}
	for path := range paths {
		if routes[path] == "" {
			t.Errorf("the document has %s", path)
		}
	}
	var slugs []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		case string:
			if slug, ok := strings.CutPrefix(v, "/problems/"); ok {
				slugs = append(slugs, slug)
			}
		}
	}
	walk(map[string]any(doc))
	slices.Sort(slugs)
	if got := slices.Compact(slugs); !slices.Equal(got, httplock.Slugs()) {
		t.Errorf("the document has the problems %q; there are %q", got, httplock.Slugs())
	}
	for _, slug := range httplock.Slugs() {
		if text := s.get(200, "/problems/"+slug).text("text"); len(text) < 40 {
			t.Errorf("/problems/%s is %q", slug, text)
		}
	}
	s.get(404, "/problems/nothing")
}
