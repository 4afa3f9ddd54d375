package console

import (
	"hash/maphash"
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/sse"
	"github.com/fencelock/fencelock/httplock/internal/watch"
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
	defer c.watch.Stay()()
	sse.Begin(v.w)
	if v.Method == http.MethodHead {
		return
	}
	alive := time.NewTicker(sse.KeepAlive)
	defer alive.Stop()
	shown, begun := uint64(0), false
	q := v.URL.Query()
	picks := v.picks(q.Get("key"), q.Get("prefix"))
	for v.identify() != nil { // the token of the visitor may be revoked
		s, next := c.watch.Latest(v.Context(), picks)
		if sum := sumOf(s); sum != shown || !begun {
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

// picks are the keys that a page shows: one, or all with a prefix.
func (v *visit) picks(one, prefix string) func(key string) bool {
	return func(key string) bool {
		return (one == "" || key == one) && strings.HasPrefix(key, prefix) && v.who.mayLook(key)
	}
}

var seed = maphash.MakeSeed()

// sumOf differs if the page does.
func sumOf(s *watch.State) uint64 {
	var sum uint64
	for _, l := range s.Lines {
		sum += maphash.Comparable(seed, keySum{l.Key, l.Sum}) // in any order
	}
	return sum + maphash.Comparable(seed, s.Down.UnixNano()) + maphash.Comparable(seed, s.Refuses)
}

// keySum is one line of a sum.
type keySum struct {
	key string
	sum uint64
}
