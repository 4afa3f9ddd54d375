package httplock_test

import (
	"encoding/json"
	"maps"
	"regexp"
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

func TestAcquireRenewCheckRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(nil)
		left := func(r result, ttl float64) { // a hundredth of it is for clocks of different rates
			t.Helper()
			if ms := r.number("left_ms"); ms < 980*ttl || ms > 990*ttl {
				t.Errorf("%v ms are left of %v s", ms, ttl)
			}
		}
		a := s.do("POST", "/v1/acquire", `{"key":"nightly","ttl":"20s","note":"deploy","owner":"alice@ci"}`).ok(t)
		steps.Same(t, "key", a.text("key"), "nightly")
		steps.Same(t, "kind", a.text("kind"), "exclusive")
		steps.Same(t, "ttl_ms", a.number("ttl_ms"), 20_000)
		left(a, 20)
		line := s.do("GET", "/v1/line?key=nightly", "").ok(t)
		if text := marshal(line.answer); !strings.Contains(text, `"owner":"alice@ci"`) ||
			!strings.Contains(text, `"note":"deploy"`) || line.text("last_token") != a.text("token") {
			t.Errorf("the line is %s", text)
		}
		left(s.do("POST", "/v1/renew", marshal(map[string]any{"handle": a.answer["handle"], "ttl": "60s"})).ok(t), 60)
		c := s.verb("check", a).ok(t)
		left(c, 60)
		steps.Same(t, "held", c.answer["held"], true)
		steps.Same(t, "token", c.text("token"), a.text("token"))
		steps.Same(t, "released", s.verb("release", a).ok(t).answer["released"], true)
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
	inWorld(t, func(w *world) {
		s := w.server(nil)
		doc := s.do("GET", "/v1/openapi.json", "").ok(t).answer
		has := map[string]string{}
		for path, item := range doc["paths"].(map[string]any) {
			methods := slices.Collect(maps.Keys(item.(map[string]any)))
			has[path] = strings.ToUpper(strings.Join(methods, " "))
		}
		routes := s.Paths()
		routes["/problems/{slug}"] = "GET"
		if !maps.Equal(has, routes) {
			t.Errorf("the document has the routes %v; there are %v", has, routes)
		}
		var slugs []string
		for _, m := range regexp.MustCompile(`"/problems/([a-z-]+)"`).FindAllStringSubmatch(marshal(doc), -1) {
			slugs = append(slugs, m[1])
		}
		slices.Sort(slugs)
		if got := slices.Compact(slugs); !slices.Equal(got, httplock.Slugs()) {
			t.Errorf("the document has the problems %q; there are %q", got, httplock.Slugs())
		}
		for _, slug := range httplock.Slugs() {
			if text := s.do("GET", "/problems/"+slug, "").ok(t).text("text"); len(text) < 40 {
				t.Errorf("/problems/%s is %q", slug, text)
			}
		}
	})
}
