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

// blank is a problem that has only a status.
func blank(status int, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// write responds to a request with p. A refusal depends on what others did a moment
// ago, so it must not be cached.
func (p problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemMedia)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that has gone needs no answer
}
