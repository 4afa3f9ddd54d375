package zklock

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
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

// at returns the place of the node with that name, or -1.
func (l *line) at(name string) int {
	return slices.IndexFunc(l.members, func(m member) bool { return m.name == name })
}

// readLine asks who is in line. It answers zk.ErrNoNode if there is none.
func (b *Backend) readLine(ctx context.Context, conn client, key string) (*line, error) {
	dir := b.lineOf(key)
	children, err := conn.Children(dir).wait(ctx, b)
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
	if inOrder(l.members) {
		return l, nil
	}
	// The server's count has run over. The transactions that made the nodes know the
	// order; their numbers are longer.
	stats, err := b.stats(ctx, conn, dir, l.members)
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

// sideBySide is how many questions are asked at once where there are many.
const sideBySide = 32

// each calls f for 0 to n-1, several at once, and returns the first error.
func each(n int, f func(i int) error) error {
	var mu sync.Mutex
	var first error
	var group sync.WaitGroup
	next := 0
	for range min(n, sideBySide) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := first != nil || i >= n
				mu.Unlock()
				if stop {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return first
}

// stats asks for the Stat of each node; those that are gone have none.
func (b *Backend) stats(ctx context.Context, conn client, dir string, ms []member) (map[string]*zk.Stat, error) {
	stats := make(map[string]*zk.Stat, len(ms))
	var mu sync.Mutex
	err := each(len(ms), func(i int) error {
		stat, err := conn.Exists(dir+"/"+ms[i].name).wait(ctx, b)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		stats[ms[i].name] = stat
		return nil
	})
	return stats, err
}

// found is a claim's node.
type found struct {
	member
	card  card
	path  string
	owner int64 // session
	stat  *zk.Stat
}

// seek looks for the node of a claim. It returns nil if it is not in line. There may
// be two: one of a session that has expired and is being cleared away. The later
// one is meant.
func (b *Backend) seek(ctx context.Context, conn client, r ref) (*found, error) {
	l, err := b.readLine(ctx, conn, r.key)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := len(l.members) - 1; i >= 0; i-- {
		if l.members[i].id != r.id {
			continue
		}
		f, err := b.open(ctx, conn, r.key, l.members[i])
		if !errors.Is(err, zk.ErrNoNode) {
			return f, err
		}
	}
	return nil, nil
}

// open reads a claim's node.
func (b *Backend) open(ctx context.Context, conn client, key string, m member) (*found, error) {
	p := b.lineOf(key) + "/" + m.name
	n, err := conn.Get(p).wait(ctx, b)
	if err != nil {
		return nil, err
	}
	return opened(p, m, n)
}

// opened is what the node p of the claim m says.
func opened(p string, m member, n node) (*found, error) {
	c, err := read[card](p, n.data)
	if err != nil {
		return nil, err
	}
	m.czxid = n.stat.Czxid
	return &found{member: m, card: c, path: p, owner: n.stat.EphemeralOwner, stat: n.stat}, nil
}

// busy describes the claim m, which is the first in line, to one with that many
// ahead. How much is left of its lease nobody but its holder knows; what is told is
// the most that it can be.
func (b *Backend) busy(ctx context.Context, conn client, key string, m *member, ahead int) (*driver.BusyError, error) {
	f, err := b.open(ctx, conn, key, *m)
	if err != nil {
		return nil, err
	}
	return f.busy(ahead)
}

// busy describes the claim to one with that many ahead.
func (f *found) busy(ahead int) (*driver.BusyError, error) {
	token, err := tokenOf(f.czxid)
	if err != nil {
		return nil, err
	}
	return &driver.BusyError{
		Owner: f.card.Owner, Note: f.card.Note, Token: token,
		Since: f.since(time.Time{}), Left: f.left(), Ahead: ahead,
	}, nil
}

func (f *found) left() time.Duration { return time.Duration(f.card.TTL) * time.Millisecond }

// since is when the claim was granted or, if it has not said so, joined. A granted
// claim that has just been let in by another's leaving has not said so yet; it was
// not before the line last changed.
func (f *found) since(changed time.Time) time.Time {
	if f.card.Granted != 0 {
		return millis(f.card.Granted)
	}
	joined := millis(f.stat.Ctime)
	if changed.After(joined) && !f.card.AtOnce {
		return changed
	}
	return joined
}

// standingOf reads the line and says where p stands in it, with the mark if it is
// granted.
func (b *Backend) standingOf(ctx context.Context, conn client, c driver.Claim, p *place) (driver.Ticket, int, *line, error) {
	_, gen, _ := b.link.state()
	node, _, ok := b.inLine(p)
	if !ok {
		return driver.Ticket{}, 0, nil, b.whyGone(p)
	}
	l, err := b.readLine(ctx, conn, c.Key)
	at := -1
	if err == nil {
		at = l.at(path.Base(node))
	} else if !errors.Is(err, zk.ErrNoNode) {
		return driver.Ticket{}, 0, nil, err
	}
	if at < 0 {
		// Our own node is among what this session has seen: it was deleted.
		return driver.Ticket{}, 0, nil, b.deleted(ctx, conn, p, node)
	}
	st := stand(l.members, at)
	var mark driver.Mark
	if st.granted && l.marked {
		// Read after the grant: what those before left, they wrote before they went.
		r, err := b.readMark(ctx, conn, c.Key)
		if err != nil {
			return driver.Ticket{}, 0, nil, err
		}
		mark = driver.Mark(r.Mark)
	}
	b.mu.Lock()
	p.shared = l.marked || len(l.members) > 1
	p.members, p.watches, p.looked, p.gen = nil, nil, time.Now(), gen
	p.first = member{name: strings.Clone(l.members[0].name), id: strings.Clone(l.members[0].id)}
	if st.granted {
		if !p.granted {
			p.stood = p.looked
		}
		if !p.granted && !p.card.AtOnce {
			p.late = p.looked
		}
		p.granted = true
	} else {
		for _, name := range blockers(l.members, at) {
			p.members = append(p.members, strings.Clone(name))
		}
	}
	b.mu.Unlock()
	return b.ticket(c, p, st, mark, nil), at, l, nil
}

// readMark reads what the last finished holder left; nothing if there is none.
func (b *Backend) readMark(ctx context.Context, conn client, key string) (markRecord, error) {
	p := b.lineOf(key) + "/" + markName
	n, err := conn.Get(p).wait(ctx, b)
	if errors.Is(err, zk.ErrNoNode) {
		return markRecord{}, nil
	}
	if err != nil {
		return markRecord{}, err
	}
	return read[markRecord](p, n.data)
}

// whyGone is the answer for a claim that is not in line.
func (b *Backend) whyGone(p *place) error {
	_, gone := b.find(p.ref)
	if gone == nil {
		return driver.ErrGone{}
	}
	return *gone
}

// deleted notes that the node of p, which was there, is not any more, and finds out
// why: an operator leaves a record.
func (b *Backend) deleted(ctx context.Context, conn client, p *place, node string) error {
	b.mu.Lock()
	czxid, s, left := p.czxid, p.session, time.Until(p.ends)
	b.mu.Unlock()
	record := b.recordOf(czxid)
	n, err := conn.Get(record).wait(ctx, b)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if s.ended() {
			b.end(p, node, goneSession)
		} else {
			b.end(p, node, goneDeleted)
		}
		return b.whyGone(p)
	case err != nil:
		return err
	}
	r, err := read[brokenRecord](record, n.data)
	if err != nil {
		return err
	}
	gone := driver.ErrGone{Reason: r.Reason, Broken: true}
	b.lay(p.ref, gone, max(left, 0)+time.Second)
	b.end(p, node, gone)
	// We remember it now; the record has done its work.
	b.background(func(ctx context.Context) {
		conn.Delete(record, -1).wait(ctx, b)
	})
	return gone
}
