package httplock

import (
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/sse"
)

// viewer is one stream of events.
type viewer struct {
	*call
	key, prefix string
	next        uint64 // n of the next event
	all         bool   // it needs the state of all lines first
	lost        bool   // and events before it are missing
}

// serveEvents streams events until the client or the Server goes.
func (s *Server) serveEvents(c *call) (any, error) {
	v, err := c.viewer()
	if err != nil {
		return nil, err
	}
	if s.draining.Err() != nil {
		return nil, comeAgain(1)
	}
	if s.events.len() >= s.o.MaxViewers {
		return nil, &problem{slug: slugTooMany, retry: 10, detail: "So many streams are open that no more is served."}
	}
	if err := s.events.begin(c.Context()); err != nil {
		return nil, err
	}
	defer s.events.end()
	v.resume(c.Header.Get("Last-Event-ID"))
	sse.Begin(c.w)
	c.status = http.StatusOK
	v.stream()
	return nil, nil
}

func (c *call) viewer() (*viewer, error) {
	q := c.URL.Query()
	if err := checkQuery(q, "key", "prefix"); err != nil {
		return nil, err
	}
	v := &viewer{call: c, key: q.Get("key"), prefix: q.Get("prefix"), all: true}
	if v.key != "" && v.prefix != "" {
		return nil, invalid("Give a key or a prefix, not both.")
	}
	if !c.who.can(verbLook) || v.key != "" && !c.who.sees(v.key) {
		return nil, c.who.may(verbLook, v.key)
	}
	return v, nil
}

// resume goes on after the event that the client has seen last.
func (v *viewer) resume(id string) {
	if id == "" {
		return
	}
	next, ok := v.s.events.position(id)
	v.next, v.all, v.lost = next, !ok, !ok
}

func (v *viewer) sees(key string) bool {
	return (v.key == "" || v.key == key) && strings.HasPrefix(key, v.prefix) && v.who.sees(key)
}

func (v *viewer) stream() {
	alive := time.NewTicker(sse.KeepAlive)
	defer alive.Stop()
	for {
		more, err := v.send()
		if err != nil {
			return
		}
		select {
		case <-more:
		case <-alive.C:
			if sse.Send(v.w, sse.Alive) != nil {
				return
			}
		case <-v.Context().Done():
			return
		case <-v.s.draining.Done():
			return
		}
	}
}

// send writes what has happened since the last time.
func (v *viewer) send() (more <-chan struct{}, err error) {
	list, next, whole, more := v.s.events.after(v.next, v.all)
	var b strings.Builder
	if whole && (v.lost || !v.all) {
		v.s.events.format(&b, &event{next - 1, eventReset, "", []byte("{}")})
	}
	for i := range list {
		if v.sees(list[i].key) {
			v.s.events.format(&b, &list[i])
		}
	}
	v.next, v.all, v.lost = next, false, false
	if b.Len() == 0 {
		if !whole {
			return more, nil
		}
		b.WriteString(": hello\n\n")
	}
	return more, sse.Send(v.w, b.String())
}
