package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
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

// index returns the index of the node with that name, or -1.
func (l *line) index(name string) int {
	return slices.IndexFunc(l.members, func(m member) bool { return m.name == name })
}

// readLine asks who is in line. It answers zk.ErrNoNode if the line has no container.
func (b *Backend) readLine(ctx context.Context, s *session, key string) (*line, error) {
	dir := b.lineOf(key)
	children, err := s.children(ctx, dir)
	if err != nil {
		return nil, err
	}
	l := &line{stat: children.stat, members: make([]member, 0, len(children.names))}
	for _, name := range children.names {
		if name == markName {
			l.marked = true
			continue
		}
		m, ok := parseMember(name)
		if !ok {
			return nil, otherVersion(dir + "/" + name)
		}
		l.members = append(l.members, m)
	}
	if sortMembers(l.members) {
		return l, nil
	}
	// The server's count has run over. The transactions that made the nodes know the
	// order; their numbers are longer.
	stats, err := stats(ctx, s, dir, l.members)
	if err != nil {
		return nil, err
	}
	l.members = slices.DeleteFunc(l.members, func(m member) bool { return stats[m.name] == nil })
	for i := range l.members {
		l.members[i].czxid = stats[l.members[i].name].Czxid
	}
	slices.SortFunc(l.members, func(x, y member) int { return cmp.Compare(x.czxid, y.czxid) })
	return l, nil
}

// maxParallel is how many requests are sent at once where there are many.
const maxParallel = 32

// each calls f for 0 to n-1, several at once, and returns the first error.
func each(n int, f func(i int) error) error {
	var mu sync.Mutex
	var first error
	var group sync.WaitGroup
	next := 0
	take := func(err error) (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		i = next
		next++
		return i, first == nil && i < n
	}
	for range min(n, maxParallel) {
		group.Go(func() {
			for i, ok := take(nil); ok; i, ok = take(f(i)) {
			}
		})
	}
	group.Wait()
	return first
}

// stats asks for the Stat of each node; those that are gone have none.
func stats(ctx context.Context, s *session, dir string, ms []member) (map[string]*zk.Stat, error) {
	all := make([]*zk.Stat, len(ms))
	err := each(len(ms), func(i int) (err error) {
		all[i], err = s.exists(ctx, dir+"/"+ms[i].name)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
	byName := make(map[string]*zk.Stat, len(ms))
	for i, stat := range all {
		byName[ms[i].name] = stat
	}
	return byName, err
}

// found is a claim's node as it was read.
type found struct {
	member
	record claimRecord
	path   string
	owner  int64 // session
	stat   *zk.Stat
}

// seek looks for the node of a claim. It returns nil if it is not in line. There may
// be two: one of a session that has expired and is being cleared away. The later
// one is meant.
func (b *Backend) seek(ctx context.Context, s *session, ref driver.ClaimRef) (*found, error) {
	l, err := b.readLine(ctx, s, ref.Key)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(l.members) {
		if m.id != ref.ID {
			continue
		}
		f, err := b.open(ctx, s, ref.Key, m)
		if !errors.Is(err, zk.ErrNoNode) {
			return f, err
		}
	}
	return nil, nil
}

// open reads a claim's node.
func (b *Backend) open(ctx context.Context, s *session, key string, m member) (*found, error) {
	path := b.lineOf(key) + "/" + m.name
	n, err := s.get(ctx, path)
	if err != nil {
		return nil, err
	}
	return parseNode(path, m, n)
}

// parseNode reads the record in a claim's node.
func parseNode(path string, m member, n node) (*found, error) {
	r, err := read[claimRecord](path, n.data)
	if err != nil {
		return nil, err
	}
	m.czxid = n.stat.Czxid
	return &found{member: m, record: r, path: path, owner: n.stat.EphemeralOwner, stat: n.stat}, nil
}

// busy describes the claim to one with that many ahead. How much is left of its lease
// nobody but its holder knows; what is told is the most that it can be.
func (f *found) busy(ahead int) (*driver.BusyError, error) {
	token, err := tokenOf(f.czxid)
	if err != nil {
		return nil, err
	}
	return &driver.BusyError{
		Owner: f.record.Owner, Note: f.record.Note, Token: token,
		Since: f.since(time.Time{}), Left: f.left(), Ahead: ahead,
	}, nil
}

func (f *found) left() time.Duration { return time.Duration(f.record.TTL) * time.Millisecond }

// since is when the claim was granted or, if it has not said so, joined. A granted
// claim that has just been let in by another's leaving has not said so yet; it was
// not before the line last changed.
func (f *found) since(changed time.Time) time.Time {
	if f.record.Granted != 0 {
		return time.UnixMilli(f.record.Granted)
	}
	joined := time.UnixMilli(f.stat.Ctime)
	if changed.After(joined) && !f.record.AtOnce {
		return changed
	}
	return joined
}

// readMark reads what the last finished holder left; nothing if there is none.
func (b *Backend) readMark(ctx context.Context, s *session, key string) (markRecord, error) {
	path := b.lineOf(key) + "/" + markName
	n, err := s.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return markRecord{}, nil
	}
	if err != nil {
		return markRecord{}, err
	}
	return read[markRecord](path, n.data)
}

// nodeGone notes that the node of c, which was there, is not any more, and finds out
// why: an operator leaves a record.
func (b *Backend) nodeGone(ctx context.Context, s *session, c *claim, p position) error {
	path := b.recordOf(p.czxid)
	n, err := s.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		if p.session.ended() {
			c.end(p.node, goneSession)
		} else {
			c.end(p.node, goneDeleted)
		}
		return c.whyGone()
	}
	if err != nil {
		return err
	}
	r, err := read[brokenRecord](path, n.data)
	if err != nil {
		return err
	}
	gone := driver.ErrGone{Reason: r.Reason, Broken: true}
	b.claims.entomb(c.ClaimRef, gone, c.leaseLeft()+time.Second)
	c.end(p.node, gone)
	// The tombstone remembers it now; the record has done its work.
	b.tasks.run(func(ctx context.Context) { _ = s.delete(ctx, path) })
	return gone
}
