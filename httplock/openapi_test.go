package httplock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/httplock"
)

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
