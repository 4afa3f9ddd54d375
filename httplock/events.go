package httplock

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
	"github.com/fencelock/fencelock/internal/note"
)

// eventReset is the name of an event before which others are missing. The other names are kinds
// of changes.
const eventReset watch.What = "reset"

// eventData is the data of all events but line and reset.
type eventData struct {
	Key    string      `json:"key"`
	Token  fence.Token `json:"token"`
	Owner  string      `json:"owner"`
	Note   string      `json:"note"`
	Kind   string      `json:"kind"`
	Reason string      `json:"reason,omitempty"`
	At     time.Time   `json:"at"`
	Notice int64       `json:"notice_ms,omitempty"` // of revoked
}

// noteGrant tells viewers of a grant of this Server.
func (s *Server) noteGrant(w *want, g *granted) {
	s.watch.Granted(w.Key, fencelock.Standing{
		Token: g.Token, Owner: w.Owner, Note: w.Note, Kind: w.kind, Permits: w.permits, Size: w.size,
		Granted: true, Since: time.Now(), Left: time.Duration(g.LeftMS) * time.Millisecond,
	})
}

// formatEvent writes a change as an event at a position. A waiter that has left shows in its
// line, and is no event.
func formatEvent(b *strings.Builder, at watch.Position, c *watch.Change) {
	what, data := c.What, any(struct{}{})
	switch c.What {
	case eventReset:
	case watch.Left:
		return
	case watch.LineChanged:
		data = viewOf(&c.Line.Line)
	case watch.Gone:
		what = watch.Released
		if c.RanOut {
			what = watch.Lost
		}
		fallthrough
	default:
		text := note.Parse(c.Note).Text
		data = eventData{c.Key, c.Token, c.Owner, text, c.Kind, c.Reason, c.At.UTC(), c.Notice.Milliseconds()}
	}
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // the types of events can be encoded
	}
	fmt.Fprintf(b, "id: %s-%d\nevent: %s\ndata: %s\n\n", at.Epoch, at.N, what, text)
}

// readPosition reads a Last-Event-ID. One that is none names no change.
func readPosition(id string) watch.Position {
	epoch, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return watch.Position{}
	}
	return watch.Position{Epoch: epoch, N: n}
}
