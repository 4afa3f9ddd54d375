// Package serve tests package httplock and fencelock serve from the outside: by the document of
// the API, and as processes that are killed.
package serve_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
)

// reader reads every answer by the document.
type reader struct {
	*testing.T
	doc  libopenapi.Document
	by   validator.Validator
	mu   sync.Mutex
	seen map[string]bool // "POST /v1/acquire 200"
}

func newReader(t *testing.T, document []byte) *reader {
	t.Helper()
	doc, err := libopenapi.NewDocument(document)
	steps.Must(t, err)
	by, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := by.ValidateDocument(); !ok {
		for _, err := range errs {
			t.Errorf("the document: %v %v", err, err.SchemaValidationErrors)
		}
	}
	return &reader{T: t, doc: doc, by: by, seen: map[string]bool{}}
}

// visit sends a request and reads its answer by the document.
func (r *reader) visit(url, token, method, path, body string, header ...string) (status int, answer string) {
	r.Helper()
	q, err := http.NewRequest(method, url+path, strings.NewReader(body))
	steps.Must(r, err)
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			q.Host = header[i+1]
		}
	}
	res, err := http.DefaultClient.Do(q)
	steps.Must(r, err)
	defer res.Body.Close()
	var raw []byte
	if res.Header.Get("Content-Type") == "text/event-stream" {
		raw = make([]byte, 1)
		_, err = io.ReadFull(res.Body, raw)
	} else {
		raw, err = io.ReadAll(res.Body)
	}
	steps.Must(r, err)
	r.read(q, path, res, raw)
	return res.StatusCode, string(raw)
}

func (r *reader) read(q *http.Request, path string, res *http.Response, raw []byte) {
	r.Helper()
	bare, _, _ := strings.Cut(path, "?")
	route := bare
	if strings.HasPrefix(bare, "/problems/") {
		route = "/problems/{slug}"
	}
	method := q.Method
	if res.StatusCode == http.StatusMethodNotAllowed { // it answers for the method that there is
		method = res.Header.Get("Allow")
	}
	asked, err := http.NewRequest(method, "http://localhost"+path, nil)
	steps.Must(r, err)
	res.Body = io.NopCloser(bytes.NewReader(raw))
	if ok, errs := r.by.ValidateHttpResponse(asked, res); !ok {
		for _, err := range errs {
			r.Errorf("%s %s: %d %s: %v: %v", method, path, res.StatusCode, raw, err, err.SchemaValidationErrors)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[fmt.Sprint(method, " ", route, " ", res.StatusCode)] = true
}

// missing are the answers of the document that were not seen.
func (r *reader) missing() []string {
	model, err := r.doc.BuildV3Model()
	steps.Must(r, err)
	var all []string
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, operation := range item.GetOperations().FromOldest() {
			for code := range operation.Responses.Codes.FromOldest() {
				if answer := strings.ToUpper(method) + " " + path + " " + code; !r.seen[answer] {
					all = append(all, answer)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// service is a Server on the network.
type service struct {
	*httplock.Server
	url, token string
}

func newService(t *testing.T, b driver.Backend, o *httplock.Options) *service {
	t.Helper()
	client := testclient.New(t, b, nil)
	s, err := httplock.New(client, o)
	steps.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &service{s, testclient.Serve(t, s.HTTPServer(), s.Drain).URL, ""}
}

// field is a member of an answer that is text.
func field(answer, name string) string {
	_, rest, _ := strings.Cut(answer, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Every answer that the document has is seen, and is as the document says.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	store := memlock.New()
	free := newService(t, store, nil)
	res, err := http.Get(free.url + "/v1/openapi.json")
	steps.Must(t, err)
	defer res.Body.Close()
	document, err := io.ReadAll(res.Body)
	steps.Must(t, err)
	r := newReader(t, document)
	r.usual(free)
	r.refused(store)
	r.broken(free)
	r.ended(store)
	if missing := r.missing(); len(missing) > 0 {
		t.Errorf("answers that were not seen:\n%s", strings.Join(missing, "\n"))
	}
}

func (r *reader) want(status int, s *service, method, path, body string, header ...string) string {
	r.Helper()
	got, answer := r.visit(s.url, s.token, method, path, body, header...)
	if got != status {
		r.Errorf("%s %s %s: %d %s, want %d", method, path, body, got, answer, status)
	}
	return answer
}

// usual are the answers of a free server to requests that are well.
func (r *reader) usual(s *service) {
	grant := r.want(200, s, "POST", "/v1/acquire", `{"key":"k","note":"n","owner":"o","ttl":"1m","wait":"1s"}`)
	handle := `{"handle":"` + field(grant, "handle") + `"}`
	r.want(200, s, "POST", "/v1/acquire", `{"key":"r","kind":"shared"}`)
	r.want(200, s, "POST", "/v1/acquire", `{"key":"s","kind":"permits","size":3,"permits":2}`)
	r.want(409, s, "POST", "/v1/acquire", `{"key":"k"}`)
	r.want(409, s, "POST", "/v1/acquire", `{"key":"k","kind":"permits","size":3}`)
	r.want(200, s, "POST", "/v1/renew", handle)
	r.want(200, s, "POST", "/v1/check", handle)
	for _, key := range []string{"k", "s", "nobody"} {
		r.want(200, s, "GET", "/v1/line?key="+key, "")
	}
	r.want(200, s, "GET", "/v1/lines?prefix=&limit=2", "")
	r.want(200, s, "GET", "/v1/events?prefix=k", "")
	slot := r.want(200, s, "POST", "/v1/once", `{"key":"o","slot":"1h"}`)
	r.want(409, s, "POST", "/v1/once", `{"key":"o","slot":"1h"}`)
	r.want(200, s, "POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":%q}`, field(slot, "handle"), field(slot, "slot")))
	r.want(200, s, "POST", "/v1/once", `{"key":"o","slot":"1h"}`)
	r.want(409, s, "POST", "/v1/once", `{"key":"o","slot":"2020-01-01T00:00:00Z"}`)
	ever := r.want(200, s, "POST", "/v1/once", `{"key":"e","slot":"ever"}`)
	r.want(200, s, "POST", "/v1/release", fmt.Sprintf(`{"handle":%q,"done":"ever"}`, field(ever, "handle")))
	for _, key := range []string{"o", "e"} { // their last runs
		r.want(200, s, "GET", "/v1/line?key="+key, "")
	}
	r.want(200, s, "POST", "/v1/release", handle)
	for _, verb := range []string{"renew", "check", "release"} {
		r.want(410, s, "POST", "/v1/"+verb, handle)
		r.want(400, s, "POST", "/v1/"+verb, `{"handle":"x"}`)
		r.want(400, s, "POST", "/v1/"+verb, `{"hand":"x"}`)
	}
	r.want(200, s, "POST", "/v1/leave", `{"key":"b","request_id":"a-wish-of-mine"}`)
	r.want(403, s, "POST", "/v1/leave", `{"key":"b","request_id":"a-wish-of-mine"}`, "Sec-Fetch-Site", "cross-site")
	token := field(r.want(200, s, "POST", "/v1/acquire", `{"key":"b"}`), "token")
	r.want(200, s, "POST", "/v1/break", `{"key":"b","token":"`+token+`","reason":"r","delay":"1m"}`)
	r.want(200, s, "POST", "/v1/break", `{"key":"b","token":"`+token+`","reason":"r","delay":"0s"}`)
	r.want(404, s, "POST", "/v1/break", `{"key":"b","token":"`+token+`","reason":"r"}`)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/problems/lost"} {
		r.want(200, s, "GET", path, "")
	}
	r.want(404, s, "GET", "/problems/none", "")
}

var (
	posts = []string{"/v1/acquire", "/v1/once", "/v1/renew", "/v1/check", "/v1/release", "/v1/leave", "/v1/break"}
	gets  = []string{"/v1/line?key=k", "/v1/lines", "/v1/events", "/metrics"}
)

// broken are the answers to requests that are not well.
func (r *reader) broken(s *service) {
	for _, path := range posts {
		r.want(400, s, "POST", path, `{`)
		r.want(405, s, "DELETE", path, "")
		r.want(413, s, "POST", path, strings.Repeat(" ", 70_000))
		r.want(421, s, "POST", path, `{}`, "Host", "evil.example")
		r.want(403, s, "POST", path, `{}`, "Sec-Fetch-Site", "cross-site")
	}
	for _, path := range gets {
		r.want(405, s, "POST", path, "{}")
		r.want(421, s, "GET", path, "", "Host", "evil.example")
	}
	for _, path := range []string{"/healthz", "/readyz", "/v1/openapi.json", "/problems/lost"} {
		r.want(405, s, "POST", path, "")
	}
	r.want(400, s, "GET", "/v1/line?key=", "")
	r.want(400, s, "GET", "/v1/lines?limit=x", "")
	r.want(400, s, "GET", "/v1/events?key=a&prefix=b", "")
}

// refused are the answers to those who may not, and to those who ask for too much.
func (r *reader) refused(store *memlock.Store) {
	token, line := httplock.NewToken("nobody")
	tokens, err := httplock.ReadTokens(strings.NewReader(strings.Replace(line, "acquire  nobody/", "look  nothing/", 1)))
	steps.Must(r, err)
	s := newService(r.T, store, &httplock.Options{Tokens: tokens})
	for _, path := range posts {
		r.want(401, s, "POST", path, `{}`)
	}
	for _, path := range gets {
		r.want(401, s, "GET", path, "")
	}
	acquirer, line := httplock.NewToken("acquirer")
	narrow, err := httplock.ReadTokens(strings.NewReader(strings.Replace(line, "acquirer/", "nothing/", 1)))
	steps.Must(r, err)
	a := newService(r.T, store, &httplock.Options{Tokens: narrow})
	a.token, s.token = acquirer, token
	for _, path := range gets {
		r.want(403, a, "GET", path, "")
	}

	few := newService(r.T, memlock.New(), &httplock.Options{MaxHeld: 1, MaxViewers: -1})
	r.want(200, few, "POST", "/v1/acquire", `{"key":"k"}`)
	r.want(429, few, "POST", "/v1/acquire", `{"key":"k2"}`)
	r.want(429, few, "POST", "/v1/once", `{"key":"k2","slot":"1h"}`)
	r.want(429, few, "GET", "/v1/events", "")
}

// ended are the answers of servers that drain, that keep leases, and that have lost their store.
func (r *reader) ended(store *memlock.Store) {
	const here = "http://10.0.0.1:7533"
	kept := newService(r.T, struct{ driver.Backend }{memlock.New()}, &httplock.Options{Advertise: here})
	peer := newService(r.T, struct{ driver.Backend }{memlock.New()}, &httplock.Options{Peers: []string{here}})
	grant := r.want(200, kept, "POST", "/v1/acquire", `{"key":"k"}`)
	for _, verb := range []string{"renew", "check", "release"} {
		answer := r.want(421, peer, "POST", "/v1/"+verb, `{"handle":"`+field(grant, "handle")+`"}`)
		if field(answer, "instance") != here {
			r.Errorf("%s: %s", verb, answer)
		}
	}

	client := testclient.New(r, store, nil)
	lost, err := httplock.New(client, nil)
	steps.Must(r, err)
	web := httptest.NewServer(lost)
	defer web.Close()
	s := &service{lost, web.URL, ""}
	handle := field(r.want(200, s, "POST", "/v1/acquire", `{"key":"last","ttl":"10m"}`), "handle")
	for path, body := range map[string]string{
		"/v1/acquire": `{"key":"last","wait":"5m","request_id":"wish-of-mine"}`,
		"/v1/once":    `{"key":"last","wait":"5m","request_id":"wish-no-2","slot":"1h"}`,
	} {
		waits := make(chan string, 1)
		go func() {
			_, answer := r.visit(s.url, "", "POST", path, body)
			waits <- answer
		}()
		token := r.waiter(client, "last")
		r.want(200, s, "POST", "/v1/break", `{"key":"last","token":"`+token+`","reason":"r"}`)
		steps.Same(r, "a waiter that was broken", field(<-waits, "type"), "/problems/lost")
	}

	lost.Drain()
	r.want(503, s, "GET", "/readyz", "")
	r.want(503, s, "GET", "/v1/events", "")
	r.want(503, s, "POST", "/v1/acquire", `{"key":"k"}`)
	_ = client.Close()
	r.want(503, s, "POST", "/v1/once", `{"key":"k","slot":"1h"}`)
	r.want(503, s, "GET", "/v1/lines", "")
	r.want(503, s, "GET", "/v1/line?key=k", "")
	r.want(503, s, "POST", "/v1/leave", `{"key":"k","request_id":"a-wish-of-mine"}`)
	r.want(503, s, "POST", "/v1/break", `{"key":"k","token":"1","reason":"r"}`)
	for _, verb := range []string{"renew", "check", "release"} {
		r.want(503, s, "POST", "/v1/"+verb, `{"handle":"`+handle+`"}`)
	}
}

// waiter returns the token of the claim that waits for key, once it does.
func (r *reader) waiter(c *fencelock.Client, key string) (token string) {
	r.Helper()
	testserver.Eventually(r, time.Minute, "somebody waits", func() bool {
		l, err := c.Line(r.Context(), key)
		steps.Must(r, err)
		if len(l.Claims) > 1 {
			token = l.Claims[1].Token.String()
		}
		return token != ""
	})
	return token
}
