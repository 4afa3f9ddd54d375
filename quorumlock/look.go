package quorumlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// lookFor is how long Line waits for a node, and how long Lines waits for the nodes that
// come after a majority.
const lookFor = 2 * time.Second

// Line shows the line of key as a majority has it.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	lines, err := b.look(ctx, key, func(n *node) ([]driver.Line, error) {
		call, cancel := context.WithTimeout(b.ctx, lookFor)
		defer cancel()
		l, err := n.Line(call, key)
		return []driver.Line{l}, err
	})
	if err != nil {
		return driver.Line{}, err
	}
	if len(lines) == 0 {
		return driver.Line{Key: key}, nil
	}
	return lines[0], nil
}

// Lines yields the lines that a majority has, sorted by key. It reads the lines of all
// members into memory. That takes as long as a majority needs, and two seconds more at
// most. A claim is shown as not granted if it has a majority only together with nodes
// that do not answer.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		call, end := context.WithCancel(b.ctx)
		lines, err := b.look(ctx, prefix, func(n *node) ([]driver.Line, error) {
			return readAll(n.Lines(call, prefix))
		})
		// The requests still under way may end by themselves: to cancel one may cost its
		// connection.
		time.AfterFunc(lookFor, end)
		if err != nil {
			yield(driver.Line{}, err)
			return
		}
		for _, l := range lines {
			if err := ctx.Err(); err != nil {
				yield(driver.Line{}, err)
				return
			}
			if len(l.Claims) > 0 && !yield(l, nil) {
				return
			}
		}
	}
}

func readAll(seq iter.Seq2[driver.Line, error]) (lines []driver.Line, err error) {
	for l, err := range seq {
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// shown is what one node answered to a look.
type shown struct {
	node  int
	lines []driver.Line
	err   error
}

// look reads lines from all nodes and merges them. It returns as soon as no silent node
// could change who has a majority.
func (b *Backend) look(
	ctx context.Context, key string, read func(*node) ([]driver.Line, error),
) ([]driver.Line, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.done()
	answers := make(chan shown, len(b.nodes))
	for i, n := range b.nodes {
		if n.silent() {
			answers <- shown{i, nil, errSilent}
			continue
		}
		b.runFor(n, func() {
			lines, err := read(n)
			n.returned(err)
			answers <- shown{i, lines, err}
		})
	}
	m := merger{count: b.newCount(key), last: map[string]int64{}, copies: map[claimOnLine]*copies{}}
	m.late = time.NewTimer(math.MaxInt64)
	defer m.late.Stop()
	cut := collect(ctx, b, answers, m.add, m.decided, m.late.C)
	switch {
	case cut != nil && cut != errTooLate:
		return nil, fmt.Errorf("%w: %v", cut, m.short())
	case !m.isAcked():
		return nil, m.result()
	}
	return m.lines(), nil
}

// merger merges the lines that the nodes show. A node acknowledges by showing them.
type merger struct {
	*count
	last   map[string]int64 // by key
	copies map[claimOnLine]*copies
	late   *time.Timer // ends the time of the nodes behind the majority
}

// claimOnLine names one claim as people see it.
type claimOnLine struct {
	key   string
	token int64
	id    string
}

// copies is one claim as the nodes that have it show it.
type copies struct {
	standing driver.Standing
	left     []time.Duration // by node, in no order
}

// add counts the answer of one node. Of a line that it shows twice the first counts.
func (m *merger) add(a shown) {
	m.count.add(a.node, a.err)
	if a.err == nil && m.acked == m.b.majority {
		m.late.Reset(lookFor)
	}
	seen := make(map[string]bool, len(a.lines))
	for _, l := range a.lines {
		if seen[l.Key] {
			continue
		}
		seen[l.Key] = true
		m.last[l.Key] = max(m.last[l.Key], l.Last)
		for _, s := range l.Claims {
			if s.Granted && !s.Lingering { // claims of a quorum neither wait nor linger
				m.addCopy(claimOnLine{l.Key, s.Token, s.ID}, s)
			}
		}
	}
}

func (m *merger) addCopy(id claimOnLine, s driver.Standing) {
	c := m.copies[id]
	if c == nil {
		c = &copies{standing: s}
		m.copies[id] = c
	}
	c.left = append(c.left, s.Left)
	c.standing.Reason = cmp.Or(c.standing.Reason, s.Reason)
	if s.Since.Before(c.standing.Since) {
		c.standing.Since = s.Since
	}
}

// silent is how many nodes have not shown their lines.
func (m *merger) silent() int { return len(m.b.nodes) - m.acked }

// decided reports whether no further answer matters: too many nodes have failed, all have
// answered, or the silent ones can change no claim's majority.
func (m *merger) decided() bool {
	if m.answered-m.acked > m.b.spare || m.answered == len(m.b.nodes) {
		return true
	}
	if !m.isAcked() {
		return false
	}
	for _, c := range m.copies {
		if n := len(c.left); n < m.b.majority && n+m.silent() >= m.b.majority {
			return false
		}
	}
	return true
}

// lines returns what a majority has, and what a majority may have if the silent nodes
// have it too. The latter is not shown as granted.
func (m *merger) lines() (lines []driver.Line) {
	claims := map[string][]driver.Standing{}
	for id, c := range m.copies {
		if len(c.left)+m.silent() >= m.b.majority { // or else a failed attempt
			claims[id.key] = append(claims[id.key], c.merge(m.b.majority))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.last)) {
		slices.SortFunc(claims[key], func(a, b driver.Standing) int { return cmp.Compare(a.Token, b.Token) })
		lines = append(lines, driver.Line{Key: key, Last: m.last[key], Claims: claims[key]})
	}
	return lines
}

// merge describes a claim. A granted one has Left until a majority no longer has it.
func (c *copies) merge(majority int) driver.Standing {
	s, n := c.standing, len(c.left)
	slices.Sort(c.left)
	s.Granted, s.Left = n >= majority, c.left[n-1]
	if s.Granted {
		s.Left = c.left[n-majority]
	}
	return s
}
