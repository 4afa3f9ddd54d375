package fence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// Header carries the token of a request: its decimal digits and nothing else.
const Header = "Fencing-Token"

// Transport sends the token that a request's context carries (see [WithToken]) in
// the header Fencing-Token. A server that has [Handler] in front refuses the request
// if the token is stale; [CheckResponse] turns that response into an error.
//
//	client := &http.Client{Transport: &fence.Transport{}}
//	ctx = fence.WithToken(lease.Context(), lease.Token())
//
// Requests that change nothing (GET, HEAD, OPTIONS, TRACE) may go without a token.
// Any other request without a token in its context fails with [ErrNoToken] and is not
// sent. Transport replaces or removes a header of that name that the caller has set.
type Transport struct {
	// Base sends the requests; http.DefaultTransport if nil.
	Base http.RoundTripper
}

// RoundTrip sends r, with the token of its context.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token := TokenFrom(r.Context())
	if err := need("", token); err != nil && (!harmless(r.Method) || token < 0) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%w; give the request a context made by fence.WithToken", err)
	}
	r2 := r.Clone(r.Context()) // a RoundTripper must not change what it was given
	r2.Header.Del(Header)
	if token > 0 {
		r2.Header.Set(Header, token.String())
	}
	return cmp.Or(t.Base, http.DefaultTransport).RoundTrip(r2)
}

// harmless reports whether a method is safe as HTTP defines it.
func harmless(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// CheckResponse returns a *StaleError if r is the response of a [Handler] that refused
// a stale token, and an error that matches [ErrNoToken] if it refused a token that was
// missing or unreadable. For all other responses it returns nil, whatever their status.
// The body can be read afterwards as before.
func CheckResponse(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusBadRequest, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
	default:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != problemMedia {
		return nil
	}
	const most = 64 << 10 // ours are far smaller
	body := r.Body
	text, err := io.ReadAll(io.LimitReader(body, most))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), body), body}
	if err != nil {
		return fmt.Errorf("fence: reading why the server refused the request: %w", err)
	}
	var p problem
	if json.Unmarshal(text, &p) != nil {
		return nil // somebody else's
	}
	switch p.Type {
	case problemStale:
		return &StaleError{Resource: p.Resource, Token: p.Token, Seen: p.Seen}
	case problemNoToken:
		return fmt.Errorf("fence: %w: the server says: %s", ErrNoToken, printable(p.Detail))
	}
	return nil
}
