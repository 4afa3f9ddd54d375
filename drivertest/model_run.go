package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How long a sequence is, and on how many keys.
const (
	modelSteps = 300
	modelKeys  = 3
	stepsShown = 25 // operations shown when an answer is wrong
)

// modelRun sends random operations to a backend and to the model.
type modelRun struct {
	*world
	rng    *rand.Rand
	seed   uint64
	expiry bool // leases may end
	model  *model
	lines  []string     // keys
	known  []*sentClaim // in order of birth
	steps  []string
}

// sentClaim is a claim that was sent at some time, whatever became of it.
type sentClaim struct {
	driver.Claim
	token int64
	view  *view
	left  bool // has left, so that another Enter of it is not part of the laws
}

// runModel plays one sequence.
func runModel(t tester, open func() driver.Backend, seed uint64, expiry bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	w := newWorld(ctx, t, open, config{})
	p := &modelRun{
		world:  w,
		rng:    rand.New(rand.NewPCG(seed, seed)),
		seed:   seed,
		expiry: expiry,
		model:  newModel(),
	}
	for range modelKeys {
		p.lines = append(p.lines, w.key())
	}
	defer w.clean()
	for range modelSteps {
		p.step()
		p.settle()
		if t.Failed() {
			return
		}
	}
	p.compareLines()
}

// step plays one operation.
func (p *modelRun) step() {
	switch n := p.rng.IntN(100); {
	case n < 34 || len(p.known) == 0:
		p.enterNew()
	case n < 46:
		p.enterAgain()
	case n < 57:
		p.renewSome()
	case n < 76:
		p.leaveOne()
	case n < 79:
		p.leaveUnknown()
	case n < 83:
		p.breakOne()
	case n < 88:
		p.awaitOne()
	case n < 91:
		p.reserveOne()
	case n < 96 || !p.expiry:
		p.compareLines()
	default:
		p.pass(p.span())
	}
}

// settle waits until a backend that goes on in the background has come to rest, if it can
// say so: the model knows of nodes that lag nothing.
func (p *modelRun) settle() {
	for _, v := range p.views() {
		if b, ok := v.Backend.(interface{ Settle(context.Context) error }); ok {
			p.must("Settle", b.Settle(p.ctx))
		}
	}
}

// record notes an operation for the case that its answer is wrong.
func (p *modelRun) record(format string, args ...any) {
	p.steps = append(p.steps, fmt.Sprintf(format, args...))
}

// wrong says that the answer to the last operation breaks a law.
func (p *modelRun) wrong(format string, args ...any) {
	for _, s := range p.steps[max(0, len(p.steps)-stepsShown):] {
		p.t.Logf("%s", s)
	}
	p.t.Fatalf("step %d: %s (replay with %s=%d)", len(p.steps), fmt.Sprintf(format, args...), SeedVariable, p.seed)
}

// pick returns one that is known, mostly a late one.
func (p *modelRun) pick() *sentClaim {
	return p.known[max(0, len(p.known)-1-int(p.rng.ExpFloat64()*8))]
}

// name tells claims apart in the log.
func name(c driver.Claim) string {
	return fmt.Sprintf("%s %d/%d %s", driver.ShortID(c.ID), c.Weight, c.Capacity, c.Key[len(c.Key)-1:])
}

// span is a length of time about that of a lease.
func (p *modelRun) span() time.Duration {
	return time.Duration(1+p.rng.Int64N(int64(8*time.Second))) + p.info.MinTTL
}

// pass lets time go by.
func (p *modelRun) pass(d time.Duration) {
	p.record("%v go by", d)
	p.until(time.Now().Add(d))
}

// draw makes up a claim, mostly of the kind that the line is of.
func (p *modelRun) draw() driver.Claim {
	c := p.claim(p.lines[p.rng.IntN(len(p.lines))])
	l := p.model.line(c.Key, time.Now())
	sem := p.rng.IntN(2) == 0
	if len(l.claims) > 0 && p.rng.IntN(8) > 0 {
		sem = l.claims[0].Capacity != driver.RW
	}
	switch {
	case sem && p.info.Semaphore:
		c.Capacity = 4
		if p.rng.IntN(3) == 0 {
			c.Capacity = int64(2 + p.rng.IntN(5))
		}
		c.Weight = 1 + p.rng.Int64N(min(c.Capacity, 3))
	case p.rng.IntN(2) == 0:
		c.Weight = 1
	}
	if p.expiry {
		c.TTL = p.span()
	}
	if p.rng.IntN(3) == 0 {
		c.NoWait = true
	}
	if p.rng.IntN(3) == 0 {
		c.Span = 1 + p.rng.Int64N(1000)
	}
	c.Owner = fmt.Sprintf("owner %d", len(p.known))
	return c
}

func (p *modelRun) enterNew() {
	x := &sentClaim{Claim: p.draw(), view: p.views()[1-p.rng.IntN(2)]}
	p.known = append(p.known, x)
	p.enter(x)
}

func (p *modelRun) enterAgain() {
	x := p.pick()
	l := p.model.line(x.Key, time.Now())
	_, in := l.find(x.ID)
	if in == nil && x.left && l.tombstone(x.ID, time.Now()) == nil {
		return
	}
	if p.info.Fair {
		x.NoWait = p.rng.IntN(2) == 0
	}
	p.enter(x)
}

// enter sends the Enter of x and judges the answer.
func (p *modelRun) enter(x *sentClaim) {
	entered, err := x.view.try(x.Claim)
	t, now := entered.Ticket, time.Now()
	p.record("Enter %s noWait %v span %d ttl %v: %s", name(x.Claim), x.NoWait, x.Span, x.TTL, outcome(t, err))
	l := p.model.line(x.Key, now)
	i, c := l.find(x.ID)
	tombstone := l.tombstone(x.ID, now)
	switch {
	case c != nil && c.lingering:
		p.wantGone(err, tombstone, now)
		return
	case c != nil:
		c.renew(x.TTL, now)
		p.wantTicket(t, err, l, i)
		return
	case tombstone != nil:
		if l.otherKind(x.Claim) && errors.Is(err, driver.ErrKind) {
			return
		}
		p.wantGone(err, tombstone, now)
		return
	case l.otherKind(x.Claim):
		if !errors.Is(err, driver.ErrKind) {
			p.wrong("got %v; want ErrKind", err)
		}
		return
	case x.NoWait && !l.fits(x.Claim):
		p.wantBusy(err, l)
		return
	}
	if err != nil {
		p.wrong("got %v; want a ticket", err)
	}
	if p.info.Fencing && t.Token <= l.last {
		p.wrong("token %d is not above %d", t.Token, l.last)
	}
	x.token, x.left = t.Token, false
	l.last = max(l.last, t.Token+x.Span-1)
	l.claims = append(l.claims, &modelClaim{Claim: x.Claim, token: t.Token, expires: now.Add(x.TTL)})
	l.settle()
	p.wantTicket(t, err, l, len(l.claims)-1)
}

// outcome is an answer in few words.
func outcome(t driver.Ticket, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("token %d granted %v ahead %d mark %q mixed %v", t.Token, t.Granted, t.Ahead, t.Mark, t.Mixed)
}
