package drivertest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// SeedVariable names the environment variable that says which random sequences tests play: the one
// with the seed that it holds, as a failed test has printed it, or new ones if it is "random". Without
// it a test plays the same ones each time, so that a change is blamed only for what it did.
const SeedVariable = "FENCELOCK_SEED"

// Seeds returns n seeds for the random sequences of a test, or one if SeedVariable holds it.
func Seeds(t testing.TB, n int) []uint64 {
	t.Helper()
	text := os.Getenv(SeedVariable)
	if seed, err := strconv.ParseUint(text, 10, 64); err == nil {
		return []uint64{seed}
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	r := rand.New(rand.NewPCG(name.Sum64(), 0))
	if text == "random" {
		r = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	} else if text != "" {
		t.Fatalf("%s is %q; want the whole number that a failed test has printed, or random", SeedVariable, text)
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = r.Uint64()
	}
	return seeds
}

// Model plays random sequences of operations and compares each answer with a
// model of the laws. No lease ends meanwhile, so it runs against any store. A backend
// that goes on in the background has a method Settle(context.Context) error, which
// waits for that. A backend that sends a request again when its answer is late, and
// then gives another answer, has a method SendsAgainAfter() time.Duration: once an operation has taken that
// long, a wrong answer ends the sequence and proves nothing.
//
// Without seeds it takes three from Seeds. A failure prints its seed and what led to it.
func Model(t *testing.T, open Opener, seeds ...uint64) { playSeeds(t, open, false, seeds) }

// ModelInBubbles is Model with leases that end: each sequence runs in a
// testing/synctest bubble, where time is virtual. It is for backends that live in
// the memory of the test.
func ModelInBubbles(t *testing.T, open Opener, seeds ...uint64) { playSeeds(t, open, true, seeds) }

// playSeeds plays the seeds that are asked for, or three.
func playSeeds(t *testing.T, open Opener, bubbles bool, seeds []uint64) {
	if _, err := strconv.ParseUint(os.Getenv(SeedVariable), 10, 64); err == nil || len(seeds) == 0 {
		seeds = Seeds(t, 3)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			play(t, bubbles, func(t *testing.T) {
				runModel(t, func() driver.Backend { return open(t) }, seed, bubbles)
			})
		})
	}
}

// play runs f, in a bubble or not.
func play(t *testing.T, bubbles bool, f func(t *testing.T)) {
	if bubbles {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

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
	expiry bool     // leases may end
	lines  []string // keys
	model  map[string]*modelLine
	known  []*modelClaim // in order of birth
	steps  []string

	again   time.Duration // after which the backend sends a request again; 0 if it does not
	began   time.Time     // of the operation
	slowest time.Duration // operation before it
}

// runModel plays one sequence.
func runModel(t tester, open func() driver.Backend, seed uint64, expiry bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	p := &modelRun{
		world:  newWorld(ctx, t, open, config{}),
		rng:    rand.New(rand.NewPCG(seed, seed)),
		seed:   seed,
		expiry: expiry,
		model:  map[string]*modelLine{},
	}
	if b, ok := p.a.Backend.(interface{ SendsAgainAfter() time.Duration }); ok {
		p.again = b.SendsAgainAfter()
	}
	for range modelKeys {
		key := p.key()
		p.lines = append(p.lines, key)
		p.model[key] = &modelLine{}
	}
	defer p.clean()
	if v := attempt(p.sequence); v != (void{}) {
		t.Logf("the sequence proves nothing from here: %s", v.why)
	}
}

// sequence plays the operations until one has a wrong answer.
func (p *modelRun) sequence() {
	for range modelSteps {
		p.timed(p.step)
		p.timed(p.settle)
		if p.t.Failed() {
			return
		}
	}
	p.timed(p.compareLines)
}

// timed does f, and notes how long it took.
func (p *modelRun) timed(f func()) {
	p.began = time.Now()
	f()
	p.slowest = max(p.slowest, time.Since(p.began))
}

// line is the model of the line of key, as of now.
func (p *modelRun) line(key string) *modelLine {
	l := p.model[key]
	l.advance(time.Now())
	return l
}

// step plays one operation.
func (p *modelRun) step() {
	n := p.rng.IntN(100)
	if len(p.known) == 0 {
		n = 0
	}
	for _, s := range []struct {
		below int // of n
		play  func()
	}{
		{34, p.enterNew},
		{46, p.enterAgain},
		{57, p.renewSome},
		{76, p.leaveOne},
		{79, p.leaveUnknown},
		{87, p.breakOne},
		{90, p.awaitOne},
		{92, p.reserveOne},
		{96, p.compareLines},
		{100, p.pass},
	} {
		if n < s.below {
			s.play()
			return
		}
	}
}

// pass lets time go by, or where no lease may end looks at the lines.
func (p *modelRun) pass() {
	if !p.expiry {
		p.compareLines()
		return
	}
	d := p.span()
	p.record("%v go by", d)
	p.until(time.Now().Add(d))
}

// settle waits until a backend that goes on in the background has come to rest, if it can say so.
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

// wrongIf ends the sequence if the answer to the last operation breaks a law.
func (p *modelRun) wrongIf(wrong bool, format string, args ...any) {
	if !wrong {
		return
	}
	if slowest := max(p.slowest, time.Since(p.began)); p.again > 0 && slowest >= p.again {
		panic(void{fmt.Sprintf("a request that took %v may have been sent twice", slowest), true})
	}
	for _, s := range p.steps[max(0, len(p.steps)-stepsShown):] {
		p.t.Logf("%s", s)
	}
	p.t.Fatalf("step %d: %s (replay with %s=%d)", len(p.steps), fmt.Sprintf(format, args...), SeedVariable, p.seed)
}

// pick returns one that is known, mostly a late one.
func (p *modelRun) pick() *modelClaim {
	return p.known[max(0, len(p.known)-1-int(p.rng.ExpFloat64()*8))]
}

// name tells claims apart in the log.
func name(c *modelClaim) string {
	return fmt.Sprintf("%s %d/%d %s", driverutil.ShortID(c.ID), c.Weight, c.Capacity, c.Key[len(c.Key)-2:])
}

// span is a length of time about that of a lease.
func (p *modelRun) span() time.Duration {
	return time.Duration(1+p.rng.Int64N(int64(8*time.Second))) + p.info.MinTTL
}

// linger is how long a claim is to linger: to the end of the sequence where no lease may end.
func (p *modelRun) linger() time.Duration {
	if p.expiry {
		return p.span()
	}
	return p.longest()
}

// draw makes up a claim, mostly of the kind that the line is of.
func (p *modelRun) draw() driver.Claim {
	c := p.claim(p.lines[p.rng.IntN(len(p.lines))])
	l := p.line(c.Key)
	sem := p.rng.IntN(2) == 0
	if len(l.claims) > 0 && p.rng.IntN(8) > 0 {
		sem = l.claims[0].Capacity != driver.RW
	}
	switch {
	case sem && p.info.Fair:
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
	c.NoWait = p.rng.IntN(3) == 0 || c.NoWait
	if p.rng.IntN(3) == 0 {
		c.Span = 1 + p.rng.Int64N(1000)
	}
	c.Owner = fmt.Sprintf("owner %d", len(p.known))
	if len(p.known)%4 == 3 {
		c.LockDelay = c.TTL
		if p.expiry {
			c.LockDelay = max(c.TTL/4, p.info.MinTTL).Truncate(time.Microsecond)
		}
	}
	return c
}

// ticket is what the claim's holder would show. A claim that was refused has made up its token.
func (x *modelClaim) ticket() driver.Ticket {
	return driver.Ticket{Claim: x.Claim, Token: max(x.token, 1)}
}

// add makes c known.
func (p *modelRun) add(c driver.Claim, v *view) *modelClaim {
	x := &modelClaim{Claim: c, view: v}
	p.known = append(p.known, x)
	return x
}

// outcome is an answer in few words.
func outcome(t driver.Ticket, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("token %d granted %v ahead %d mark %q", t.Token, t.Granted, t.Ahead, t.Mark)
}
