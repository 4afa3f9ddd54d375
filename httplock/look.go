package httplock

import (
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
	all := []fencelock.Line{}
	truncated := false
	for l, err := range s.locks.Lines(c.Context(), q.Get("prefix")) {
		switch {
		case err != nil:
			return nil, err
		case !c.who.sees(l.Key):
			continue
		}
		if all = append(all, l); len(all) == maxLooked {
			truncated = true
			break
		}
	}
	slices.SortFunc(all, func(a, b fencelock.Line) int { return lines.ByLongestWaiting(&a, &b) })
	if len(all) > limit {
		all, truncated = all[:limit], true
	}
	views := []lineView{}
	for i := range all {
		views = append(views, viewOf(&all[i]))
	}
	return map[string]any{"lines": views, "truncated": truncated}, nil
}
