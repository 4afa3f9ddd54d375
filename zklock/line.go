package zklock

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

// line is one line as its container's children tell.
type line struct {
	members []member // in order of arrival
	marked  bool
	stat    *zk.Stat // of the container
}

// readLine reads which claims are in line. It answers zk.ErrNoNode, with an empty line, if the line has
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

// fits applies the rule of the line to the claim at index i: it is granted when its
// weight and the weights of all before it fit its capacity.
func fits(ms []member, i int) bool {
	sum := int64(0)
	for _, m := range ms[:i+1] {
		sum += m.weight
	}
	return sum <= ms[i].capacity
}

// blocker is the claim that must leave before the claim at index i can be granted; "" if any
// claim may be the one. An exclusive claim needs all before it to leave, and its neighbour is
// the last of them to be granted. A reader needs the writers before it to leave, waiting ones
// too: its neighbour may be a reader that stays. On a semaphore each claim makes room.
func blocker(ms []member, i int) string {
	for j := i - 1; j >= 0 && !ms[i].semaphore(); j-- {
		if ms[i].weight == driver.RW || ms[j].weight == driver.RW {
			return ms[j].name
		}
	}
	return "" // also for a reader in a line whose semaphore claims are about to go
}

// checkKind returns ErrKind if a claim that enters at index i must withdraw, because the first in line
// has another capacity. The first withdraws if it was not first when others behind it were accepted.
func checkKind(ms []member, i int, c *driver.Claim) error {
	if i > 0 {
		return driverutil.CheckKind(c.Capacity, ms[0].capacity)
	}
	for _, m := range ms {
		if err := driverutil.CheckKind(c.Capacity, m.capacity); err != nil {
			return err
		}
	}
	return nil
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

// left is how much may be left of the claim's lease, or of its notice. What is left of a lease only
// its holder knows.
func (f *found) left() time.Duration {
	if f.record.Ends != 0 {
		return max(time.Until(time.UnixMilli(f.record.Ends)), time.Millisecond)
	}
	return time.Duration(f.record.TTL) * time.Millisecond
}

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
	gone := driver.GoneError{Reason: r.Reason, Broken: true}
	c.end(node, gone)
	c.bar(gone, max(0, time.Until(st.ends))+time.Second)
	b.deleteLater(s, record) // the tombstone remembers it now
	return gone
}

// place reads the line and finds c in it.
func (b *Backend) place(s *session, c *claim, key string) (*line, int, error) {
	st := c.state()
	if err := st.whyNotIn(s); err != nil {
		return nil, 0, err
	}
	l, err := b.readLine(s, key)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, 0, err
	}
	at := slices.IndexFunc(l.members, func(m member) bool { return m.name == path.Base(st.at.node) })
	if at < 0 {
		// Our own node is among what this session has seen: it was deleted.
		return nil, 0, b.nodeGone(s, c, st.at.node)
	}
	return l, at, nil
}

// look reads the line and says where c stands in it, with the mark if it is granted.
func (b *Backend) look(s *session, c *claim, of driver.Claim) (driver.Ticket, error) {
	l, at, err := b.place(s, c, of.Key)
	if err != nil {
		return driver.Ticket{}, err
	}
	return b.stand(s, c, of, l, at)
}

// stand says where c stands in l, where it is at index at.
func (b *Backend) stand(s *session, c *claim, of driver.Claim, l *line, at int) (t driver.Ticket, err error) {
	st := c.state()
	t = st.ticket(of)
	t.Granted = fits(l.members, at)
	if !t.Granted {
		t.Ahead = at
		c.isBlocked(blocker(l.members, at), l.stat.Pzxid)
		t.Head, err = b.describeHead(s, of.Key, l.members[:at])
		return t, err
	}
	if l.marked {
		// Read after the grant: an earlier holder wrote its mark before it left.
		r, err := b.readMark(s, of.Key)
		if err != nil {
			return t, err
		}
		t.Mark = string(r.Mark)
	}
	c.isGranted()
	return t, nil
}

// describeHead describes the first claim in line; nil if it has gone.
func (b *Backend) describeHead(s *session, key string, ahead []member) (*driver.BusyError, error) {
	f, err := s.open(b.lineOf(key) + "/" + ahead[0].name)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &driver.BusyError{
		Standing: driver.Standing{
			Claim: driver.Claim{Owner: f.record.Owner, Note: f.record.Note, Trace: f.record.Trace},
			Token: f.token,
			Since: f.since(time.Time{}),
			Left:  f.left(),
		},
		Ahead: len(ahead),
	}, nil
}

// ticket is the answer for a claim in line.
func (st *claimState) ticket(of driver.Claim) driver.Ticket {
	of.TTL = st.ttl
	token, _ := tokenOf(st.at.czxid)
	t := driver.Ticket{Claim: of, Token: token, Left: st.ttl}
	if st.notice != nil {
		t.Left = time.Until(st.ends)
	}
	return t
}
