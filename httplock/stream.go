package httplock

import (
	"net/http"
	"strings"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/sse"
	"github.com/fencelock/fencelock/httplock/internal/watch"
)

// viewer is one stream of events.
type viewer struct {
	*call
	key, prefix string
	last        watch.Position // of the last event
	resumed     bool           // it has seen events before
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
	defer s.viewers.Add(-1)
	if s.viewers.Add(1) > int64(s.o.MaxViewers) {
		return nil, &problem{slug: slugTooMany, retry: 10, detail: "So many streams are open that no more is served."}
	}
	defer s.watch.Stay()()
	if now, _ := s.watch.Latest(c.Context(), func(string) bool { return false }); now.At.IsZero() {
		return nil, unavailable()
	}
	if id := c.Header.Get("Last-Event-ID"); id != "" {
		v.last, v.resumed = readPosition(id), true
	}
	c.setHeader()
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
	v := &viewer{call: c, key: q.Get("key"), prefix: q.Get("prefix")}
	if v.key != "" && v.prefix != "" {
		return nil, invalid("Give a key or a prefix, not both.")
	}
	if !c.who.can(verbLook) || v.key != "" && !c.who.sees(v.key) {
		return nil, c.who.may(verbLook, v.key)
	}
	return v, nil
}

func (v *viewer) sees(key string) bool {
	return (v.key == "" || v.key == key) && strings.HasPrefix(key, v.prefix) && v.who.sees(key)
}

// readmit looks again who the viewer is, and returns a channel that the next Load of the tokens closes.
func (v *viewer) readmit() (<-chan struct{}, error) {
	next := *v.s.reloaded.Load()
	who, err := v.s.o.Tokens.identify(v.Request)
	if err != nil {
		return nil, err
	}
	v.who = who
	if !who.can(verbLook) || v.key != "" && !who.sees(v.key) {
		return nil, who.may(verbLook, v.key)
	}
	return next, nil
}

func (v *viewer) stream() {
	alive := time.NewTicker(sse.KeepAlive)
	defer alive.Stop()
	reloaded, err := v.readmit()
	if err != nil {
		return
	}
	for {
		more, err := v.send()
		if err != nil {
			return
		}
		select {
		case <-more:
		case <-reloaded:
			if reloaded, err = v.readmit(); err != nil {
				return
			}
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

// sender sends events in chunks: the text of all lines may be as large as the store.
type sender struct {
	v     *viewer
	begun time.Time
	text  strings.Builder
	any   bool // something was added
	err   error
}

func (s *sender) add(at watch.Position, c *watch.Change) {
	if s.err != nil || c.What != eventReset && !s.v.sees(c.Key) {
		return
	}
	formatEvent(&s.text, at, c)
	s.any = s.any || s.text.Len() > 0
	if s.text.Len() >= sse.Chunk {
		s.flush()
	}
}

func (s *sender) flush() {
	if s.err != nil || s.text.Len() == 0 {
		return
	}
	if s.err = sse.Send(s.v.w, s.text.String()); s.err == nil && time.Since(s.begun) > longestSend {
		s.err = errTooSlow
	}
	s.text.Reset()
}

// longestSend bounds all chunks of one send together.
const longestSend = time.Minute

// send writes what has happened since the last time.
func (v *viewer) send() (more <-chan struct{}, err error) {
	list, all, last, whole, more := v.s.watch.After(v.last)
	s := &sender{v: v, begun: time.Now()}
	if whole && v.resumed {
		s.add(last, &watch.Change{What: eventReset})
	}
	for i := range list {
		s.add(list[i].Position(last), &list[i])
	}
	for _, line := range all {
		s.add(last, &watch.Change{What: watch.LineChanged, Key: line.Key, Line: line})
	}
	v.last, v.resumed = last, true
	if whole && !s.any {
		s.text.WriteString(": hello\n\n")
	}
	s.flush()
	return more, s.err
}
