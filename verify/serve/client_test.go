package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// client is a client of the API as one would write it in any language: it repeats what it has
// no answer to.
type client struct {
	base string
	name string
	http *http.Client
}

// held is a lock that a client has.
type held struct {
	Handle   string `json:"handle"`
	Token    string `json:"token"`
	LeftMS   int64  `json:"left_ms"`
	WaitedMS int64  `json:"waited_ms"`

	until time.Time // as the client must believe
}

func (h *held) token() int64 {
	n, _ := strconv.ParseInt(h.Token, 10, 64)
	return n
}

// post sends one request. A status of 0 stands for no answer.
func (c *client) post(ctx context.Context, path string, body any) (status int, answer []byte) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(b))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

// insist sends a request until it has an answer. again says that an earlier copy may have had one.
func (c *client) insist(ctx context.Context, path string, body any) (sent time.Time, status int, answer []byte, again bool) {
	for ; ctx.Err() == nil; again = true {
		sent = time.Now()
		status, answer = c.post(ctx, path, body)
		if status != 0 && status != http.StatusBadGateway && status != http.StatusServiceUnavailable {
			break
		}
		pauseOrEnd(ctx, 20*time.Millisecond)
	}
	return sent, status, answer, again
}

// acquire takes key, however often it has to ask. Every request of it has the same request_id.
func (c *client) acquire(ctx context.Context, key, wish string, ttl time.Duration) (*held, error) {
	sent, status, answer, _ := c.insist(ctx, "/v1/acquire", map[string]any{
		"key": key, "owner": c.name, "request_id": wish, "wait": "5s", "stay": true, "ttl": ttl.String(),
	})
	h := &held{}
	if err := json.Unmarshal(answer, h); status != http.StatusOK || err != nil {
		return nil, fmt.Errorf("acquire: %d %s, %v", status, answer, ctx.Err())
	}
	h.until = sent.Add(time.Duration(h.WaitedMS+h.LeftMS) * time.Millisecond)
	return h, nil
}

// release releases h. That it is lost is well if an earlier request had no answer.
func (c *client) release(ctx context.Context, h *held) error {
	_, status, answer, again := c.insist(ctx, "/v1/release", map[string]any{"handle": h.Handle})
	if status != http.StatusOK && !(status == http.StatusGone && again) {
		return fmt.Errorf("release: %d %s, %v", status, answer, ctx.Err())
	}
	return nil
}

// pauseOrEnd is the pause before a request is repeated.
func pauseOrEnd(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
