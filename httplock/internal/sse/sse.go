// Package sse writes server-sent events.
package sse

import (
	"io"
	"net/http"
	"time"
)

const (
	// KeepAlive is how often Alive is sent where nothing happens, so that proxies keep the
	// connection open.
	KeepAlive = 15 * time.Second
	// Alive is an event that nobody sees.
	Alive = ": still here\n\n"

	// Chunk is about how much is sent at once: a stream holds no more text in memory.
	Chunk = 64 << 10
	// writeTimeout is how long a reader may take to read what is sent at once.
	writeTimeout = 10 * time.Second
)

// Begin sends the header of a stream.
func Begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or nginx keeps events back
	w.WriteHeader(http.StatusOK)
}

// Send sends text. A reader that does not read is let go: the error ends its stream. No deadline
// stays behind, because HTTP/2 resets a stream whose deadline passes while nothing is sent.
func Send(w http.ResponseWriter, text string) error {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return out.Flush()
}
