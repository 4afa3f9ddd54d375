package httplock

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock/internal/lines"
)

// Limits of one look at many lines.
const (
	usualLines = 1000
	maxLines   = 10_000
	maxLooked  = 100_000

	maxLinesSize = 8 << 20 // bytes of one answer, about
)

func (s *Server) line(c *call) (any, error) {
	key, err := c.queryKey()
	if err != nil {
		return nil, err
	}
	if err := c.who.may(verbLook, key); err != nil {
		return nil, err
	}
	l, err := s.locks.Line(c.Context(), key)
	if err != nil {
		return nil, err
	}
	return viewOf(&l), nil
}

func (s *Server) lines(c *call) (any, error) {
	q := c.URL.Query()
	if err := checkQuery(q, "prefix", "limit"); err != nil {
		return nil, err
	}
	limit := usualLines
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLines {
			return nil, invalid("The limit is a number from 1 to %d.", maxLines)
		}
		limit = n
	}
	if !c.who.can(verbLook) {
		return nil, c.who.may(verbLook, "")
	}
	best := linesAnswer{limit: limit}
	looked := 0
	for l, err := range s.locks.Lines(c.Context(), q.Get("prefix")) {
		switch {
		case err != nil:
			return nil, err
		case !c.who.sees(l.Key):
			continue
		}
		best.add(l)
		if looked++; looked == maxLooked {
			best.truncated = true
			break
		}
	}
	best.cut()
	return &best, nil
}

// linesAnswer are the lines of an answer: those that come first, of all that were added.
type linesAnswer struct {
	limit     int
	list      []fencelock.Line
	size      int // about how many bytes of list
	truncated bool
}

func (a *linesAnswer) add(l fencelock.Line) {
	a.list = append(a.list, l)
	a.size += sizeOf(&l)
	if len(a.list) >= 2*a.limit+100 || a.size >= 2*maxLinesSize {
		a.cut()
	}
}

// cut keeps the first lines, as many as there may be.
func (a *linesAnswer) cut() {
	slices.SortFunc(a.list, func(x, y fencelock.Line) int { return lines.ByLongestWaiting(&x, &y) })
	n := 0
	for a.size = 0; n < min(len(a.list), a.limit); n++ {
		size := sizeOf(&a.list[n])
		if n > 0 && a.size+size > maxLinesSize {
			break
		}
		a.size += size
	}
	if n < len(a.list) {
		clear(a.list[n:])
		a.list, a.truncated = a.list[:n], true
	}
}

// sizeOf is about how much of an answer l is.
func sizeOf(l *fencelock.Line) int {
	const line, claim = 150, 200
	n := line + len(l.Key)
	for i := range l.Claims {
		n += claim + len(l.Claims[i].Owner) + len(l.Claims[i].Note)
	}
	return n
}

// writeTo writes the answer line by line: as text it takes more memory than the lines.
func (a *linesAnswer) writeTo(w io.Writer) error {
	if _, err := io.WriteString(w, `{"lines":[`); err != nil {
		return err
	}
	for i := range a.list {
		text, err := json.Marshal(viewOf(&a.list[i]))
		if err != nil {
			panic(err) // the types of answers can be encoded
		}
		if i > 0 {
			text = append([]byte(","), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "],\"truncated\":%t}\n", a.truncated)
	return err
}
