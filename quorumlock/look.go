package quorumlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Await says whether the claim is still held by a majority. A quorum has no line, so a
// claim that was granted stays so, and no other can wait.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	defer b.calls.done()
	asked, a := t, b.agreement(t.Key)
	for i, n := range b.nodes {
		b.calls.run(simply(func() {
			now, err := n.Await(b.call(patience(asked.TTL)), member(asked, i))
			if err == nil && !now.Granted {
				err = errWaits
			}
			a.add(leaving{i, err})
		}))
	}
	if err := b.agree(ctx, a); err != nil {
		return driver.Ticket{}, err
	}
	t.Granted, t.Ahead, t.Head = true, 0, nil
	return t, nil
}

var errWaits = errors.New("the claim waits, where no claim of a quorum does")

// lookFor is how long the look at one line waits for a node, and a list for nodes that
// are later than a majority.
const lookFor = 2 * time.Second

// Line shows the line of key as a majority has it.
func (b *Backend) Line(ctx context.Context, key string) (driver.Line, error) {
	lines, err := b.look(ctx, b.call(lookFor), key, func(ctx context.Context, n *node) ([]driver.Line, error) {
		if r, ok := n.Member.(driver.LineReader); ok {
			l, err := r.Line(ctx, key)
			return []driver.Line{l}, err
		}
		lines, err := collect(n.Lines(ctx, key))
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
// members into memory, for as long as a majority needs and two seconds more. A claim
// that would have a majority if nodes that do not answer had it is shown as one that is
// not granted.
func (b *Backend) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		call, end := context.WithCancel(b.ctx)
		lines, err := b.look(ctx, call, prefix, func(ctx context.Context, n *node) ([]driver.Line, error) {
			return collect(n.Lines(ctx, prefix))
		})
		// What is still under way may end by itself: a request that is cut short may cost a
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

// seen is what one node showed.
type seen struct {
	node  int
	lines []driver.Line
	err   error
}

// look asks all nodes for lines, each with the context call, and puts their answers
// together. It returns as soon as no node that has not answered could change who has a
// majority.
func (b *Backend) look(ctx, call context.Context, key string, read func(context.Context, *node) ([]driver.Line, error)) ([]driver.Line, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	defer b.calls.done()
	answers := make(chan seen, len(b.nodes))
	for i, n := range b.nodes {
		b.calls.run(simply(func() {
			lines, err := read(call, n)
			answers <- seen{i, lines, err}
		}))
	}
	m := merger{lines: map[string]*merged{}, majority: b.majority}
	short := &shortError{key: key, need: b.majority, of: len(b.nodes)}
	permanent := 0
	var late <-chan time.Time
	for pending := len(b.nodes); pending > 0 && short.have+pending >= b.majority; {
		if late != nil && m.settled(len(b.nodes)-short.have) {
			break
		}
		select {
		case a := <-answers:
			pending--
			if a.err != nil {
				short.add(b.nodes[a.node].name, a.err)
				if errors.As(a.err, new(*driver.PermanentError)) {
					permanent++
				}
				break
			}
			m.add(a.lines)
			if short.have++; short.have == b.majority {
				late = time.After(lookFor)
			}
		case <-late:
			pending = 0
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %v", ctx.Err(), short)
		case <-b.closing.Done():
			return nil, driver.ErrClosed
		}
	}
	switch {
	case short.have >= b.majority:
	case permanent > len(b.nodes)-b.majority:
		return nil, &driver.PermanentError{Err: short}
	default:
		return nil, short
	}
	return m.result(len(b.nodes) - short.have), nil
}

// merger puts lines of many nodes together.
type merger struct {
	majority int
	lines    map[string]*merged
}

// merged is one line.
type merged struct {
	last   int64
	claims map[ident]*votes
}

// ident tells the claims of a line apart.
type ident struct {
	token int64
	id    string
}

// votes is one claim as the nodes that have it show it.
type votes struct {
	standing driver.Standing
	left     []time.Duration
}

// add takes in what one node has shown. Of a line that it showed twice the first counts.
func (m *merger) add(lines []driver.Line) {
	shown := make(map[string]bool, len(lines))
	for _, l := range lines {
		if shown[l.Key] {
			continue
		}
		shown[l.Key] = true
		one := m.lines[l.Key]
		if one == nil {
			one = &merged{claims: map[ident]*votes{}}
			m.lines[l.Key] = one
		}
		one.last = max(one.last, l.Last)
		for _, s := range l.Claims {
			if !s.Granted || s.Lingering {
				continue // not ours: claims of a quorum do neither
			}
			v := one.claims[ident{s.Token, s.ID}]
			if v == nil {
				v = &votes{standing: s}
				one.claims[ident{s.Token, s.ID}] = v
			}
			v.left = append(v.left, s.Left)
			if s.Since.Before(v.standing.Since) {
				v.standing.Since = s.Since
			}
		}
	}
}

// settled reports whether the nodes that have not shown their lines change nothing.
func (m *merger) settled(silent int) bool {
	for _, l := range m.lines {
		for _, v := range l.claims {
			if n := len(v.left); n < m.majority && n+silent >= m.majority {
				return false
			}
		}
	}
	return true
}

// result is what a majority has, and what it may have, if so many nodes do not answer.
func (m *merger) result(silent int) []driver.Line {
	var lines []driver.Line
	for _, key := range slices.Sorted(maps.Keys(m.lines)) {
		l := driver.Line{Key: key, Last: m.lines[key].last}
		for _, v := range m.lines[key].claims {
			n := len(v.left)
			if n+silent < m.majority {
				continue // an attempt under way, or what is left of one
			}
			s := v.standing
			slices.Sort(v.left)
			if s.Granted = n >= m.majority; s.Granted {
				s.Left = v.left[n-m.majority] // until then a majority has it
			} else {
				s.Left = v.left[n-1]
			}
			l.Claims = append(l.Claims, s)
		}
		slices.SortFunc(l.Claims, func(a, b driver.Standing) int { return cmp.Compare(a.Token, b.Token) })
		lines = append(lines, l)
	}
	return lines
}
