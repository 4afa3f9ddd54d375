// Package testmember is a member of a quorum in memory, for tests: a memlock.Store that takes ballots.
package testmember

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/memlock"
)

// Member is a memlock.Store whose claims have tokens of their own: their ballots.
type Member struct {
	*memlock.Store
	membership ballot.Membership

	mu          sync.Mutex
	initialised bool      // readyAt is set
	readyAt     time.Time // the end of the quarantine
	lines       map[string]*line
}

// line is the record that a Member keeps of a key.
type line struct {
	last   int64   // the largest token drawn
	tokens []token // of every claim that has joined, in order of arrival
}

// token is the token of a claim: the Store knows the claim by stored.
type token struct{ stored, given, ballot int64 }

var _ ballot.Member = (*Member)(nil)

// New returns an empty member. It begins with a quarantine.
func New(m ballot.Membership) *Member {
	settled, err := m.Settled()
	if err != nil {
		panic(err)
	}
	return &Member{Store: memlock.New(), membership: settled, lines: map[string]*line{}}
}

// Info is that of a Store, but for MaxTTL.
func (m *Member) Info() driver.Info {
	info := m.Store.Info()
	info.MaxTTL = m.membership.MaxTTL
	return info
}

// IsMember returns true.
func (m *Member) IsMember() bool { return true }

// Flush forgets everything. The quarantine begins with the next ballot.
func (m *Member) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Store.Flush()
	m.initialised = false
	clear(m.lines)
}

// Initialise ends the quarantine.
func (m *Member) Initialise(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initialised, m.readyAt = true, time.Time{}
	return ctx.Err()
}

// Enter has the Store find or grant the claim. Then it judges the ballot of a new one.
func (m *Member) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return m.enter(ctx, c, false)
}

// Reenter puts back a claim that the Member has lost.
func (m *Member) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if c.Ballot == 0 {
		return driver.Ticket{}, driver.Permanent(errors.New("a claim re-enters with the ballot that it has"))
	}
	return m.enter(ctx, c, true)
}

func (m *Member) enter(ctx context.Context, c driver.Claim, reenter bool) (driver.Ticket, error) {
	if err := c.Validate(m.Info()); err != nil {
		return driver.Ticket{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.line(c.Key)
	before, err := m.Store.Line(ctx, c.Key)
	if err != nil {
		return driver.Ticket{}, err
	}
	ballot := c.Ballot
	c.Ballot = 0
	t, err := m.Store.Enter(ctx, c)
	var busy *driver.BusyError
	if errors.As(err, &busy) {
		busy.Token = l.find(busy.Token).given
	}
	if err != nil {
		return t, err
	}
	if l.find(t.Token) == (token{}) { // it is new
		drawn := max(l.last+1, t.Token)
		if ballot != 0 {
			drawn = ballot
			if err := m.judge(l, ballot, c.Span, len(before.Claims) == 0, reenter); err != nil {
				return driver.Ticket{}, cmp.Or(m.Store.Leave(ctx, t, driver.Exit{}), err)
			}
		}
		l.tokens = append(l.tokens, token{t.Token, drawn, ballot})
		l.last = max(l.last, drawn+c.Span-1)
	}
	return l.show(t), nil
}

// judge says why a ballot may not be granted, or returns nil. An old ballot may re-enter: its claim
// held a majority a moment ago, so no other claim can have one.
func (m *Member) judge(l *line, token, span int64, empty, reenter bool) error {
	now := time.Now()
	if !m.initialised {
		m.initialised, m.readyAt = true, now.Add(m.membership.MaxTTL)
	}
	if left := m.readyAt.Sub(now); left > 0 {
		return &ballot.QuarantineError{Left: left}
	}
	wall, skew := now.UnixMicro(), m.membership.Skew.Microseconds()
	above := token > max(l.last, wall-skew) && token <= max(l.last+limit.Span, wall+skew)
	if reenter {
		above = token > l.last || token+span-1 == l.last && empty
	}
	if !above {
		return ballot.Error{Last: max(l.last, wall)}
	}
	return nil
}

// line returns what is remembered of key. The caller has mu.
func (m *Member) line(key string) *line {
	if m.lines[key] == nil {
		m.lines[key] = &line{}
	}
	return m.lines[key]
}

// find returns the token of the claim that the Store knows by stored, or zero.
func (l *line) find(stored int64) token {
	byStored := func(t token, stored int64) int { return cmp.Compare(t.stored, stored) }
	i, ok := slices.BinarySearchFunc(l.tokens, stored, byStored)
	if !ok {
		return token{}
	}
	return l.tokens[i]
}

// show returns a ticket of the Store with the tokens of the Member.
func (l *line) show(t driver.Ticket) driver.Ticket {
	own := l.find(t.Token)
	t.Token, t.Ballot = own.given, own.ballot
	if t.Head != nil {
		t.Head.Token = l.find(t.Head.Token).given
	}
	return t
}

// shown is show for an answer of the Store.
func (m *Member) shown(t driver.Ticket, err error) (driver.Ticket, error) {
	if err != nil {
		return t, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.line(t.Key).show(t), nil
}

// Await is that of the Store.
func (m *Member) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return m.shown(m.Store.Await(ctx, t))
}

// Adopt is that of the Store.
func (m *Member) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	return m.shown(m.Store.Adopt(ctx, t, by))
}

// Reserve is that of the Store, for a claim without a ballot.
func (m *Member) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.Ballot != 0 {
		return false, ctx.Err()
	}
	done, err := m.Store.Reserve(ctx, t, span)
	if l := m.line(t.Key); done {
		l.last = max(l.last, t.Token+span-1)
	}
	return done, err
}

// Break finds the claim by the token of the Member. In the Store the next claim may begin
// sooner behind a span, so a token behind it must not be counted on there.
func (m *Member) Break(ctx context.Context, key string, at int64, how driver.Break) error {
	m.mu.Lock()
	d, err := m.Store.Line(ctx, key)
	l, stored := m.line(key), int64(0)
	for _, s := range d.Claims {
		if given := l.find(s.Token).given; given <= at && at < given+s.Span {
			stored = s.Token
		}
	}
	m.mu.Unlock() // listeners may call the Member
	return cmp.Or(err, m.Store.Break(ctx, key, stored, how))
}

// Line is that of the Store, with the tokens of the Member.
func (m *Member) Line(ctx context.Context, key string) (driver.Line, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.Store.Line(ctx, key)
	l := m.line(key)
	d.Last = l.last
	for i := range d.Claims {
		d.Claims[i].Token = l.find(d.Claims[i].Token).given
	}
	return d, err
}

// Lines is that of the Store, with the tokens of the Member.
func (m *Member) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		for d, err := range m.Store.Lines(ctx, prefix) {
			if err == nil {
				d, err = m.Line(ctx, d.Key)
			}
			if (err != nil || len(d.Claims) > 0) && !yield(d, err) || err != nil {
				return
			}
		}
	}
}
