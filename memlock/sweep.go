package memlock

import (
	"time"
)

// memory is how long the clock must have overtaken a line's last token before
// the line is forgotten: until then a clock that is set back could make a new
// line draw a token that is not above it.
const memory = 24 * time.Hour

// open makes a line for key, and looks at two old ones for each that it makes,
// so that lines nobody asks for again are forgotten while lines are made and
// nothing needs a goroutine.
func (s *Store) open(key string, now instant) *line {
	s.sweep(now)
	s.sweep(now)
	l := &line{key: key, index: len(s.order)}
	s.lines[key] = l
	s.order = append(s.order, l)
	return l
}

// sweep looks at the next line, and forgets it if it is idle: empty, without a
// mark, and its last token overtaken long ago.
func (s *Store) sweep(now instant) {
	if len(s.order) == 0 {
		return
	}
	if s.hand >= len(s.order) {
		s.hand = 0
	}
	l := s.order[s.hand]
	l.purge(now)
	if l.head != nil || l.marked != nil || now.wall.UnixMicro()-l.last <= memory.Microseconds() {
		s.hand++
		return
	}
	delete(s.lines, l.key)
	end := len(s.order) - 1
	moved := s.order[end]
	moved.index = s.hand
	s.order[s.hand] = moved
	s.order[end] = nil
	s.order = s.order[:end]
}
