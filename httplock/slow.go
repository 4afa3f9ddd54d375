package httplock

import (
	"errors"
	"net/http"
	"time"
)

// Limits of one answer to a client that reads slowly, or not at all. The answer is in memory until
// it is written.
const (
	chunk         = 64 << 10
	chunkTimeout  = 10 * time.Second // to read one chunk
	longestAnswer = 2 * time.Minute
)

// slow returns a writer of the answer that lets a client go that does not read it.
func (c *call) slow() *slowWriter {
	return &slowWriter{w: c.w, out: c.out, end: time.Now().Add(longestAnswer)}
}

type slowWriter struct {
	w   http.ResponseWriter
	out *http.ResponseController
	end time.Time
}

var errTooSlow = errors.New("the client does not read its answer")

func (s *slowWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		now := time.Now()
		if now.After(s.end) {
			return n, errTooSlow
		}
		_ = s.out.SetWriteDeadline(now.Add(chunkTimeout)) // not every http.ResponseWriter has deadlines
		m, err := s.w.Write(b[:min(len(b), chunk)])
		if n += m; err != nil {
			return n, err
		}
		b = b[m:]
	}
	return n, nil
}

// Close sends what is left in buffers. The deadline must not stay: HTTP/1 keeps it for the next
// answer of the connection, and HTTP/2 resets a stream when its deadline has passed, also one that
// has nothing to write.
func (s *slowWriter) Close() error {
	err := s.out.Flush()
	_ = s.out.SetWriteDeadline(time.Time{})
	return err
}
