package quorumlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
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
		if r, ok := n.Member.(driver.LineReader); ok {
			l, err := r.Line(call, key)
			return []driver.Line{l}, err
		}
		lines, err := collect(n.Lines(call, key))
		return slices.DeleteFunc(lines, func(l driver.Line) bool { return l.Key != key }), err
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
		lines, err := b.look(ctx, prefix, func(n *node) ([]driver.Line, error) { return collect(n.Lines(call, prefix)) })
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

func collect(seq iter.Seq2[driver.Line, error]) (lines []driver.Line, err error) {
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
	defer b.work.done()
	answers := make(chan shown, len(b.nodes))
	for i, n := range b.nodes {
		b.work.run(func() {
			lines, err := read(n)
			answers <- shown{i, lines, err}
		})
	}
	m := merger{b: b, lines: map[string]*mergedLine{}, short: shortError{key: key, need: b.majority, of: len(b.nodes)}}
	var late <-chan time.Time
	for !m.decided() && !(late != nil && m.settled()) {
		select {
		case a := <-answers:
			m.add(a)
			if a.err == nil && m.short.have == b.majority {
				late = time.After(lookFor)
			}
		case <-late:
			return m.result()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %v", ctx.Err(), &m.short)
		case <-b.closing.Done():
			return nil, driver.ErrClosed
		}
	}
	return m.result()
}

// merger merges the lines that the nodes show.
type merger struct {
	b         *Backend
	lines     map[string]*mergedLine
	answered  int // nodes
	permanent int // nodes that will never answer otherwise
	short     shortError
}

// mergedLine is one line on all nodes.
type mergedLine struct {
	last   int64
	claims map[claimOnLine]*copies
}

// claimOnLine tells the claims of a line apart.
type claimOnLine struct {
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
	m.answered++
	if a.err != nil {
		m.short.add(m.b.nodes[a.node].name, a.err)
		if permanent(a.err) {
			m.permanent++
		}
		return
	}
	m.short.have++
	seen := make(map[string]bool, len(a.lines))
	for _, l := range a.lines {
		if seen[l.Key] {
			continue
		}
		seen[l.Key] = true
		line := m.lines[l.Key]
		if line == nil {
			line = &mergedLine{claims: map[claimOnLine]*copies{}}
			m.lines[l.Key] = line
		}
		line.add(l)
	}
}

func (m *mergedLine) add(l driver.Line) {
	m.last = max(m.last, l.Last)
	for _, s := range l.Claims {
		if !s.Granted || s.Lingering {
			continue // claims of a quorum neither wait nor linger
		}
		id := claimOnLine{s.Token, s.ID}
		c := m.claims[id]
		if c == nil {
			c = &copies{standing: s}
			m.claims[id] = c
		}
		c.left = append(c.left, s.Left)
		if s.Since.Before(c.standing.Since) {
			c.standing.Since = s.Since
		}
	}
}

// silent is how many nodes have not shown their lines.
func (m *merger) silent() int { return len(m.b.nodes) - m.short.have }

// decided reports whether all nodes have answered, or too many have failed.
func (m *merger) decided() bool {
	failed := m.answered - m.short.have
	return m.answered == len(m.b.nodes) || failed > len(m.b.nodes)-m.b.majority
}

// settled reports whether the silent nodes can change no claim's majority.
func (m *merger) settled() bool {
	for _, l := range m.lines {
		for _, c := range l.claims {
			if n := len(c.left); n < m.b.majority && n+m.silent() >= m.b.majority {
				return false
			}
		}
	}
	return true
}

// result returns what a majority has, and what a majority may have if the silent nodes
// have it too. The latter is not shown as granted.
func (m *merger) result() ([]driver.Line, error) {
	switch {
	case m.short.have >= m.b.majority:
	case m.permanent > len(m.b.nodes)-m.b.majority:
		return nil, &driver.PermanentError{Err: &m.short}
	default:
		return nil, &m.short
	}
	var lines []driver.Line
	for _, key := range slices.Sorted(maps.Keys(m.lines)) {
		l := driver.Line{Key: key, Last: m.lines[key].last}
		for _, c := range m.lines[key].claims {
			if n := len(c.left); n+m.silent() >= m.b.majority { // or else a failed attempt
				l.Claims = append(l.Claims, c.merge(m.b.majority))
			}
		}
		slices.SortFunc(l.Claims, func(a, b driver.Standing) int { return cmp.Compare(a.Token, b.Token) })
		lines = append(lines, l)
	}
	return lines, nil
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
