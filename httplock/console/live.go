package console

import (
	"hash/maphash"
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/sse"
)

// live streams an event whenever the page that it belongs to would look different, apart from
// the time that passes. The script then loads the page again.
func (c *Console) live(v *visit) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		v.w.Header().Set("Retry-After", "10")
		v.w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer c.watch.stream()()
	sse.Begin(v.w)
	if v.Method == http.MethodHead {
		return
	}
	alive := time.NewTicker(sse.KeepAlive)
	defer alive.Stop()
	shown, begun := uint64(0), false
	for {
		s, next := c.watch.latest(v.Context())
		if sum := v.sum(s); sum != shown || !begun {
			if sse.Send(v.w, "event: change\ndata: {}\n\n") != nil {
				return
			}
			shown, begun = sum, true
		}
		select {
		case <-next:
		case <-alive.C:
			if sse.Send(v.w, sse.Alive) != nil {
				return
			}
		case <-v.Context().Done():
			return
		case <-c.ended.Done():
			return
		}
	}
}

// sum differs if the page does.
func (v *visit) sum(s *snapshot) uint64 {
	q := v.URL.Query()
	key, prefix := q.Get("key"), q.Get("prefix")
	var sum uint64
	for k, l := range s.lines {
		if (key == "" || k == key) && strings.HasPrefix(k, prefix) && v.who.mayLook(k) {
			sum += maphash.Comparable(seed, keySum{k, l.sum}) // in any order
		}
	}
	return sum + maphash.Comparable(seed, s.down.UnixNano())
}

// keySum is one line of a sum.
type keySum struct {
	key string
	sum uint64
}
