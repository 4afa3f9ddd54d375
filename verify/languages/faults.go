package languages

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// faults is a proxy that goes wrong in the way that the first part of a path names, as
// clients/conformance/README.md says.
type faults struct {
	server string // the base URL of the server behind it

	mu   sync.Mutex
	seen map[string]bool // the claims that have met their fault
}

func newFaults(server string) *faults { return &faults{server: server, seen: map[string]bool{}} }

func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return
	}
	switch {
	case way == "elsewhere":
		problem(w, http.StatusMisdirectedRequest, "misdirected", f.server)
	case way == "busy" && f.first(r.URL.Path, body):
		w.Header().Set("Retry-After", "0")
		problem(w, http.StatusServiceUnavailable, "come-again", "")
	case way == "busy":
		f.pass(w, r, "/"+path, body)
	case way == "cut" && f.first(r.URL.Path, body):
		f.pass(discard{http.Header{}}, r, "/"+path, body)
		panic(http.ErrAbortHandler)
	case way == "cut":
		f.pass(w, r, "/"+path, body)
	default: // down
		panic(http.ErrAbortHandler)
	}
}

// first reports whether no request about this claim was sent to the path before.
func (f *faults) first(path string, body []byte) bool {
	var claim struct {
		ID     string `json:"request_id"`
		Handle string `json:"handle"`
	}
	_ = json.Unmarshal(body, &claim) // the server refuses what is no JSON
	f.mu.Lock()
	defer f.mu.Unlock()
	name := path + " " + claim.ID + claim.Handle
	first := !f.seen[name]
	f.seen[name] = true
	return first
}

// pass lets the server answer.
func (f *faults) pass(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	request, err := http.NewRequestWithContext(r.Context(), r.Method, f.server+path, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request.Header = r.Header.Clone()
	request.URL.RawQuery = r.URL.RawQuery
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}

func problem(w http.ResponseWriter, status int, slug, instance string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "/problems/" + slug, "title": slug, "status": status, "detail": slug, "instance": instance,
	})
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
