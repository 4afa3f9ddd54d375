package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// mostVotes bounds how often one Enter proposes. The second time is for clocks that
// differ; more are for clients that come at once and get a few nodes each.
const mostVotes = 16

// Enter proposes one ballot to all members at once, and is granted if a majority
// grants it before the lease has lost its worth: one request per member if the lock is
// free. It never waits in line, whatever c.NoWait says. It proposes again, with
// another ballot, where the first was not above what the members had granted before,
// and, after a pause, where nobody has a majority because several came at once.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	defer b.calls.done()
	if err := b.check(&c); err != nil {
		return driver.Ticket{}, err
	}
	cl := b.use(name{c.Key, c.ID}, nowhere)
	defer b.done(cl)
	select {
	case cl.turn <- struct{}{}:
		defer func() { <-cl.turn }()
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	case <-b.closing.Done():
		return driver.Ticket{}, driver.ErrClosed
	}
	cl.begin()
	var v *tally
	for n := 1; ; n++ {
		// A claim that holds already is asked for with the ballot that it has.
		ballot := cl.holds()
		if ballot == 0 {
			ballot = b.ballot(v, int64(n))
		}
		before := v
		v = b.vote(ctx, cl, c, ballot)
		if before != nil {
			v.remember(before)
		}
		if t, ok := v.ticket(); ok {
			cl.hold(t.Token)
			return t, nil
		}
		cl.hold(0)
		b.retreat(ctx, cl, c, v)
		again, crowd := v.again()
		if v.cut != nil || !again || n == mostVotes {
			return driver.Ticket{}, v.refusal()
		}
		if err := b.pause(ctx, n, crowd, time.Since(v.sent)); err != nil {
			return driver.Ticket{}, err
		}
	}
}

// ballot chooses what to propose, after a vote that failed, or first of all. Once nodes
// have refused a ballot they have said what they take; the own clock, which may be far
// off, has nothing to say any longer. No two votes of a call have the same ballot, so
// that what is left of one is not taken for a grant of the next: n is which it is.
func (b *Backend) ballot(before *tally, n int64) int64 {
	clock := b.now().UnixMicro()
	switch {
	case before == nil:
		return max(clock, 1)
	case before.refused:
		return before.floor + n
	}
	return max(clock, before.floor+1, before.claim.Ballot+1)
}

// pause keeps clients that came at once from coming again at once.
func (b *Backend) pause(ctx context.Context, n int, crowd bool, took time.Duration) error {
	d := time.Duration(0)
	if crowd || n > 1 {
		d = rand.N(max(took, time.Millisecond) * time.Duration(min(1<<n, 32)))
	}
	timer := time.NewTimer(max(d, 1)) // one that is due at once ends the race detector in bubbles (golang/go#78156)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing.Done():
		return driver.ErrClosed
	}
}

// headGrace is how much longer than the refusal itself a vote waits to learn who it is
// that holds the lock.
const headGrace = 20 * time.Millisecond

// vote proposes a ballot to all members and waits until it is settled.
func (b *Backend) vote(ctx context.Context, cl *claim, c driver.Claim, ballot int64) *tally {
	c.Ballot, c.NoWait = ballot, true
	w := b.waiter(validity(c.TTL))
	defer b.rest(w)
	v := &tally{b: b, claim: c, sent: time.Now(), answers: make([]answer, len(b.nodes)), bell: w.bell}
	b.everywhere(cl, func(i int, ended bool) { v.add(b.enterAt(i, cl, v, ended)) })
	var grace <-chan time.Time
	for {
		late, cut := false, error(nil)
		select {
		case <-w.bell:
		case <-grace:
			late = true
		case <-w.limit.C:
			late = true
		case <-ctx.Done():
			cut = ctx.Err()
		case <-b.closing.Done():
			cut = driver.ErrClosed
		}
		ended, lost := v.end(late, cut)
		if ended {
			break
		}
		if !lost || grace != nil {
			continue
		}
		timer := time.NewTimer(max(headGrace, 2*time.Since(v.sent)))
		defer timer.Stop()
		grace = timer.C
	}
	if _, won := v.ticket(); !won {
		v.over.Store(true)
	}
	return v
}

// waiter is what a vote waits with. They are used again, and a ring may be left from the
// vote before: whoever hears one looks.
type waiter struct {
	bell  chan struct{} // rung when the vote is settled, and when it is lost
	limit *time.Timer
}

func (b *Backend) waiter(limit time.Duration) *waiter {
	w, ok := b.waiters.Get().(*waiter)
	if !ok {
		return &waiter{make(chan struct{}, 1), time.NewTimer(limit)}
	}
	w.limit.Reset(limit)
	return w
}

func (b *Backend) rest(w *waiter) {
	w.limit.Stop()
	b.waiters.Put(w)
}

// answer is what one node answered to an Enter.
type answer struct {
	node   int
	came   bool
	ticket driver.Ticket
	err    error
}

var (
	errOver = errors.New("the attempt was over before it was asked")
	errLate = errors.New("the answers came too late for the lease")
)

// enterAt proposes to one node.
func (b *Backend) enterAt(i int, cl *claim, v *tally, ended bool) answer {
	a := answer{node: i, came: true}
	c := v.claim
	switch {
	case ended:
		a.err = driver.ErrClosed
		return a
	case cl.at(i) >= owing:
		a.err = driver.ErrGone{Reason: "an attempt before it got no answer and was laid to rest"}
		return a
	case v.over.Load() || time.Since(v.sent) >= validity(c.TTL):
		a.err = errOver
		return a
	}
	c.ID = cl.spots[i].id
	cl.sends(i, c.Ballot)
	a.ticket, a.err = b.nodes[i].Enter(b.call(patience(c.TTL)), c)
	switch {
	case a.err == nil:
		cl.put(i, inside)
	case definite(a.err):
		cl.put(i, nowhere)
		a.err = b.twin(i, cl.id, c, a.err)
	default:
		cl.put(i, unsure)
	}
	return a
}

// definite reports whether err says that nothing of a claim has entered.
func definite(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrClosed) ||
		errors.As(err, new(*driver.BusyError)) || errors.As(err, new(driver.ErrBallot)) ||
		errors.As(err, new(*driver.QuarantineError)) || errors.As(err, new(*driver.PermanentError))
}

// twin looks whether it is ourselves who are in the way: then two members are one
// store. Somebody else may have proposed the same ballot.
func (b *Backend) twin(i int, id string, c driver.Claim, err error) error {
	var busy *driver.BusyError
	reader, ok := b.nodes[i].Member.(driver.LineReader)
	if !ok || !errors.As(err, &busy) || busy.Token != c.Ballot {
		return err
	}
	l, lookErr := reader.Line(b.call(patience(c.TTL)), c.Key)
	if lookErr != nil {
		return err
	}
	for _, s := range l.Claims {
		if s.Token == c.Ballot && s.ID == driver.ShortID(id) {
			twins := fmt.Errorf("%s of the quorum is the same store as another member: a majority of votes would not be a majority of stores", b.nodes[i].name)
			b.twins.Store(&twins)
			return &driver.PermanentError{Err: twins}
		}
	}
	return err
}

// retreat takes an attempt that failed away from all nodes. It waits for those that
// have answered, so that the next attempt finds them free; the others follow behind.
func (b *Backend) retreat(ctx context.Context, cl *claim, c driver.Claim, v *tally) {
	n := 0
	left := make(chan leaving, len(b.nodes))
	answer := func(l leaving) { left <- l }
	t := driver.Ticket{Claim: c, Token: c.Ballot}
	for i, a := range v.answers {
		stands := cl.at(i)
		if a.came && (stands == nowhere || stands >= owing) {
			continue
		}
		if a.came && stands == inside {
			n++
		}
		ticket := t
		if a.ticket.Token != 0 {
			ticket.Token = a.ticket.Token
		}
		ticket.Token = max(ticket.Token, 1)
		b.behind(cl, i, func(i int, ended bool) { b.leaveAt(i, cl, ticket, false, answer, ended) })
	}
	if v.cut != nil {
		return
	}
	for n > 0 {
		select {
		case l := <-left:
			if v.answers[l.node].came && v.answers[l.node].err == nil {
				n--
			}
		case <-ctx.Done():
			return
		case <-b.closing.Done():
			return
		}
	}
}
