package tofu

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
)

var recordTo = flag.String("record", "", "write the requests of OpenTofu, and the answers, to this file")

// exchange is a request and its answer.
type exchange struct {
	Method string          `json:"method"`
	Path   string          `json:"path"` // with the query
	Type   string          `json:"content_type,omitempty"`
	MD5    string          `json:"content_md5,omitempty"`
	Body   string          `json:"body,omitempty"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// recorder passes requests on, and writes them down in the order of the answers.
type recorder struct {
	mu   sync.Mutex
	made []exchange
}

// before starts a recorder in front of a server, and returns its URL.
func (r *recorder) before(t *testing.T, server string) string {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ModifyResponse: r.add,
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		q.Header.Set("X-Body", url.QueryEscape(string(body)))
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

func (r *recorder) add(res *http.Response) error {
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	q := res.Request
	body, _ := url.QueryUnescape(q.Header.Get("X-Body"))
	e := exchange{
		Method: q.Method, Path: q.URL.RequestURI(), Type: q.Header.Get("Content-Type"), MD5: q.Header.Get("Content-MD5"),
		Body: body, Status: res.StatusCode,
	}
	if json.Valid(answer) {
		e.Answer = answer
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, e)
	return nil
}

// save writes the exchanges to the file of the flag -record.
func (r *recorder) save(t *testing.T) {
	t.Helper()
	if *recordTo == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := json.MarshalIndent(r.made, "", " ")
	if err == nil {
		err = os.WriteFile(*recordTo, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
