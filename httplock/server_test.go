package httplock_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
)

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

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func handleOf(a answer) string { return marshal(map[string]any{"handle": a["handle"]}) }

// checkTaken checks what others see of the lock nightly that alice@ci holds under a.
func checkTaken(t *testing.T, s *local, a result) {
	t.Helper()
	line := s.do("GET", "/v1/line?key=nightly", "").ok(t)
	if text := marshal(line.answer); !strings.Contains(text, `"owner":"alice@ci"`) || !strings.Contains(text, `"note":"deploy"`) ||
		line.text("last_token") != a.text("token") {
		t.Errorf("the line is %s", text)
	}
	held := s.do("POST", "/v1/acquire", `{"key":"nightly"}`).is(t, 409, "not-acquired")
	if holders, _ := held.answer["holders"].([]any); len(holders) != 1 || held.number("ahead") != 1 {
		t.Errorf("the refusal is %v", held.answer)
	}
}

func TestAcquireRenewCheckRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		a := s.do("POST", "/v1/acquire", `{"key":"nightly","ttl":"20s","note":"deploy","owner":"alice@ci"}`).ok(t)
		if a.text("key") != "nightly" || a.text("kind") != "exclusive" || a.number("ttl_ms") != 20_000 ||
			a.number("left_ms") < 19_000 || a.number("left_ms") > 19_800 || len(a.text("request_id")) < 8 {
			t.Errorf("the grant is %v", a.answer)
		}
		checkTaken(t, s, a)
		longer := marshal(map[string]any{"handle": a.answer["handle"], "ttl": "60s"})
		if r := s.do("POST", "/v1/renew", longer).ok(t); r.number("left_ms") < 59_000 {
			t.Errorf("renewed: %v", r.answer)
		}
		if c := s.verb("check", a).ok(t); c.number("left_ms") < 59_000 || c.answer["held"] != true || c.text("token") != a.text("token") {
			t.Errorf("checked: %v", c.answer)
		}
		if r := s.verb("release", a).ok(t); r.answer["released"] != true {
			t.Errorf("released: %v", r.answer)
		}
		for _, verb := range []string{"renew", "check", "release"} {
			if p := s.verb(verb, a).is(t, 410, "lost"); p.text("reason") == "" || p.text("key") != "nightly" {
				t.Errorf("%s of a released handle: %v", verb, p.answer)
			}
		}
	})
}

// The document has every route and every type of problem, and no others. That answers are as
// it says is tested by verify/serve.
func TestDocumentHasEveryRouteAndProblem(t *testing.T) {
	s, _ := listening(t)
	doc := s.do("GET", "/v1/openapi.json", "").ok(t).answer
	paths, _ := doc["paths"].(map[string]any)
	routes := s.Paths()
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
		if text := s.do("GET", "/problems/"+slug, "").ok(t).text("text"); len(text) < 40 {
			t.Errorf("/problems/%s is %q", slug, text)
		}
	}
	steps.Same(t, "status of a problem that is none", s.do("GET", "/problems/nothing", "").status, 404)
}
