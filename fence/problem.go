package fence

import (
	"encoding/json"
	"net/http"
)

// problemMedia is the media type of RFC 9457.
const problemMedia = "application/problem+json"

// The types of our problems are the addresses where they are explained.
const (
	problemStale   = "https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrStale"
	problemNoToken = "https://pkg.go.dev/github.com/fencelock/fencelock/fence#ErrNoToken"
	problemBlank   = "about:blank" // the status says it all
)

// problem is the body of a refusal, as RFC 9457 describes it. Resource, Token and
// Seen are our members; tokens are strings, because they exceed 2^53.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Resource string `json:"resource,omitempty"`
	Token    Token  `json:"token,omitempty"`
	Seen     Token  `json:"seen,omitempty"`
}

// write answers a request with p. A refusal depends on what others did a moment
// ago: nobody may cache it.
func (p problem) write(w http.ResponseWriter) {
	b, err := json.Marshal(p)
	if err != nil {
		b = []byte("{}") // cannot be: all its parts are text and numbers
	}
	h := w.Header()
	h.Set("Content-Type", problemMedia)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}
