package zklock

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// line is one line as its container's children tell.
type line struct {
	members []member // in order of arrival
	marked  bool
	stat    *zk.Stat // of the container
}

// readLine asks who is in line. It answers zk.ErrNoNode, with an empty line, if the line has
// no container.
func (b *Backend) readLine(s *session, key string) (*line, error) {
	dir := b.lineOf(key)
	names, stat, err := s.children(dir)
	l := &line{stat: stat}
	for _, name := range names {
		if name == markName {
			l.marked = true
			continue
		}
		m, ok := parseMember(name)
		if !ok {
			return l, otherVersion(dir + "/" + name)
		}
		l.members = append(l.members, m)
	}
	// The server counts in 32 bits and goes from 2147483647 to -2147483648. The difference
	// of two numbers runs over likewise.
	slices.SortFunc(l.members, func(x, y member) int { return int(x.seq - y.seq) })
	return l, err
}

// find returns the index of the claim with that ID, or -1. There may be two: one of a session
// that has expired and is being cleared away. The later one is meant.
func (l *line) find(id string) int {
	for i, m := range slices.Backward(l.members) {
		if m.id == id {
			return i
		}
	}
	return -1
}

// found is a claim's node as it was read.
type found struct {
	member
	record claimRecord
	token  int64
	path   string
	stat   *zk.Stat
}

// open reads a claim's node.
func (s *session) open(node string) (*found, error) {
	data, stat, err := s.get(node)
	if err != nil {
		return nil, err
	}
	r, err := read[claimRecord](node, data)
	if err != nil {
		return nil, err
	}
	token, err := tokenOf(stat.Czxid)
	m, _ := parseMember(path.Base(node))
	return &found{m, r, token, node, stat}, err
}

// left is how much may be left of the claim's lease. What is left only its holder knows.
func (f *found) left() time.Duration { return time.Duration(f.record.TTL) * time.Millisecond }

// since is when the claim was granted or, if its node does not say so, joined. A granted
// claim that has just been let in by another's leaving has not said so yet; it was
// not before the line last changed.
func (f *found) since(changed time.Time) time.Time {
	joined := time.UnixMilli(f.stat.Ctime)
	switch {
	case f.record.Held != 0:
		return time.UnixMilli(f.stat.Mtime - f.record.Held)
	case changed.After(joined) && !f.record.AtOnce:
		return changed
	}
	return joined
}

// readMark reads what the last finished holder left; nothing if there is none.
func (b *Backend) readMark(s *session, key string) (markRecord, error) {
	path := b.lineOf(key) + "/" + markName
	data, _, err := s.get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return markRecord{}, nil
	}
	if err != nil {
		return markRecord{}, err
	}
	return read[markRecord](path, data)
}

// nodeGone notes that the node of c, which was there, is not any more, and finds out
// why: an operator leaves a record.
func (b *Backend) nodeGone(s *session, c *claim, node string) error {
	st := c.state()
	record := b.recordOf(st.at.czxid)
	data, _, err := s.get(record)
	if errors.Is(err, zk.ErrNoNode) {
		c.end(node, goneDeleted)
		st = c.state()
		return cmp.Or(st.whyNotIn(s), errRetry)
	}
	if err != nil {
		return err
	}
	r, err := read[brokenRecord](record, data)
	if err != nil {
		return err
	}
	gone := driver.ErrGone{Reason: r.Reason, Broken: true}
	c.end(node, gone)
	c.bar(gone, max(0, time.Until(st.ends))+time.Second)
	b.deleteLater(s, record) // the tombstone remembers it now
	return gone
}
