package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/redis/go-redis/v9"
)

// clock stands in for the server's in scripts: expiries can be met to the microsecond.
type clock struct {
	t   *testing.T
	rdb *redis.Client // of the server itself
	now int64         // µs
}

// clocked opens a Backend whose scripts read a clock of the test.
func clocked(t *testing.T) (*Backend, *clock) {
	t.Helper()
	s := newServer(t)
	c := &clock{t: t, rdb: dial(t, s), now: time.Now().Add(time.Hour).UnixMicro()} // ahead: nothing expires by itself
	c.sleep(0)
	b := connect(t, s, nil)
	for _, rdb := range []*redis.Client{b.rdb.(*redis.Client), b.transport.queueOf(b.rdb).near} {
		rdb.AddHook(c)
	}
	return b, c
}

func (c *clock) sleep(d time.Duration) {
	c.now += d.Microseconds()
	must(c.t, c.rdb.HSet(context.Background(), "clock", "s", c.now/1e6, "us", c.now%1e6).Err())
}

// rewrite has a script read the clock.
func (c *clock) rewrite(cmd redis.Cmder) {
	args := cmd.Args()
	if args[0] != evalsha && args[0] != eval {
		return
	}
	for _, s := range []*script{enterScript, leaveScript, renewScript, awaitScript, breakScript, adoptScript, lookScript,
		reserveScript} {
		if args[1] == s.sha || args[1] == s.text {
			args[0], args[1] = eval, strings.Replace(s.text.(string), "call('TIME')", "call('HMGET', 'clock', 's', 'us')", 1)
		}
	}
}

func (c *clock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *clock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (c *clock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.rewrite(cmd)
		}
		return next(ctx, cmds)
	}
}

// A lease of a minute is there for a minute, and not at its end: each call judges that alike.
func TestLeaseEndsToTheMicrosecond(t *testing.T) {
	b, clock := clocked(t)
	ctx := t.Context()
	for name, call := range map[string]func(k driver.Ticket) error{
		"Renew":        func(k driver.Ticket) error { return renew(t, b, k) },
		"Leave":        func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{}) },
		"Leave, marks": func(k driver.Ticket) error { return b.Leave(ctx, k, driver.Exit{Mark: "m"}) },
		"Await":        func(k driver.Ticket) error { return errOf(b.read(ctx, k)) },
		"Break":        func(k driver.Ticket) error { return b.Break(ctx, k.Key, k.Token, driver.Break{}) },
		"Adopt":        func(k driver.Ticket) error { return errOf(b.Adopt(ctx, k, mutex(k.Key))) },
		"Reserve": func(k driver.Ticket) error {
			if done, err := b.Reserve(ctx, k, 9); done || err != nil {
				return err
			}
			return driver.GoneError{}
		},
		"another's try": func(k driver.Ticket) error {
			if _, err := b.Enter(ctx, noWait(mutex(k.Key))); err != nil {
				return nil // the lease is there
			}
			return driver.GoneError{}
		},
		"Line": func(k driver.Ticket) error {
			if len(line(t, b, k.Key).Claims) == 0 {
				return driver.GoneError{}
			}
			return nil
		},
	} {
		for _, early := range []time.Duration{time.Microsecond, 0} {
			k := hold(t, b, mutex(name+early.String()))
			clock.sleep(k.TTL - early)
			if err := call(k); driver.Gone(err) != (early == 0) || !driver.Gone(err) && err != nil {
				t.Errorf("%s, %v before the end of the lease, answered %v", name, early, err)
			}
		}
	}
}

// A waiter whose lease has ended is not granted, and one whose lease ends later is: also when the holder leaves in
// the very microsecond.
func TestGrantSkipsWhoHasJustExpired(t *testing.T) {
	b, clock := clocked(t)
	held := hold(t, b, mutex("key"))
	clock.sleep(time.Second)
	short, long := mutex("key"), mutex("key")
	short.TTL, long.TTL = 10*time.Second, 10*time.Second+time.Microsecond
	k, w := wait_(t, b, short), wait_(t, b, long)
	clock.sleep(10 * time.Second)
	leave(t, b, held)
	wantGone(t, "a waiter whose lease has ended", renew(t, b, k))
	if now, err := b.read(t.Context(), w); err != nil || !now.Granted {
		t.Errorf("the next in line: granted %v, %v", now.Granted, err)
	}
}

// An ID is any text, also one that looks like a field of the lock.
func TestIDsThatLookLikeFields(t *testing.T) {
	_, b, rdb := served(t)
	ctx := t.Context()
	named := func(id string) driver.Claim {
		c := mutex("key")
		c.ID = id
		return c
	}
	for _, id := range []string{"l:x", "c:x", "m:x", "x", ":", "held", "waits", "soonest", "\x00", "1 2 3"} {
		held, w := hold(t, b, mutex("key")), wait_(t, b, named(id))
		if l := line(t, b, "key"); l.Claims[1].ID != driverutil.ShortID(id) || l.Claims[1].Lingering {
			t.Errorf("%q: the line is %+v", id, l.Claims)
		}
		must(t, b.Leave(ctx, held, driver.Exit{Mark: "mark"}))
		granted(t, b, w)
		ok(t, renew(t, b, w))
		must(t, b.Leave(ctx, w, driver.Exit{Linger: time.Minute}))
		must(t, b.Break(ctx, "key", w.Token, driver.Break{Reason: "over", Delay: -1})) // ends it

		held, w = hold(t, b, mutex("key")), wait_(t, b, named(id+" waits"))
		must(t, b.Leave(ctx, w, driver.Exit{Linger: time.Minute})) // keeps its place
		next := wait_(t, b, named(id+" next"))
		leave(t, b, held)
		if l := line(t, b, "key"); len(l.Claims) != 2 || !l.Claims[0].Lingering || l.Claims[1].Granted {
			t.Errorf("%q: the line is %+v", id, l.Claims)
		}
		must(t, b.Break(ctx, "key", w.Token, driver.Break{Reason: "over", Delay: -1}))
		granted(t, b, next)
		must(t, b.Break(ctx, "key", next.Token, driver.Break{Reason: "broken"}))
		if _, err := b.Enter(ctx, next.Claim); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%q: Enter of a claim that was broken answered %v", id, err)
		}
		for field := range rdb.HGetAll(ctx, b.hashName("key")).Val() {
			if strings.Contains(field, ":") || field == "held" {
				t.Errorf("%q: the empty lock has a field %q", id, field)
			}
		}
	}
}

// A waiter that leaves with Linger keeps its place: the waiters behind it wait until that is over, though the lock
// is free. Then the first of them gets the lock, and no client has to call for that.
func TestWaiterThatLingersKeepsItsPlace(t *testing.T) {
	t.Parallel()
	_, b, _ := served(t)
	held, w := hold(t, b, mutex("key")), wait_(t, b, mutex("key"))
	next := wait_(t, b, mutex("key"))
	must(t, b.Leave(t.Context(), w, driver.Exit{Linger: 2 * time.Second}))
	wantGone(t, "Renew of the one who lingers", renew(t, b, w))
	leave(t, b, held)
	if l := line(t, b, "key"); len(l.Claims) != 2 || !l.Claims[0].Lingering || l.Claims[1].Granted {
		t.Errorf("while it lingers the line is %+v", l.Claims)
	}
	granted(t, b, next)
	if l := line(t, b, "key"); len(l.Claims) != 1 {
		t.Errorf("when it is over the line is %+v", l.Claims)
	}
	leave(t, b, next)
}

// model is a line as the rule has it, beside the line in Redis.
type model struct {
	*testing.T
	b     *Backend
	clock *clock
	r     *rand.Rand
	key   string
	claim func() driver.Claim
	line  []member
	log   []string
}

type member struct {
	driver.Ticket
	ends    int64 // µs
	lingers bool
}

// TestGrantsFollowTheOneRule plays random calls on one line, in which leases end, and compares with the rule that
// decides everything: granted(c) ⇔ weight(c) + Σ weight(b) for every live b before c ≤ capacity(c).
func TestGrantsFollowTheOneRule(t *testing.T) {
	t.Parallel()
	b, clock := clocked(t)
	seed := drivertest.Seeds(t, 1)[0]
	t.Logf("seed %d", seed)
	for round := range 12 {
		m := &model{T: t, b: b, clock: clock, r: rand.New(rand.NewPCG(seed, uint64(round))), key: fmt.Sprint(round)}
		m.claim = func() driver.Claim {
			switch {
			case round%2 == 1:
				return slots(m.key, 1+m.r.Int64N(4), 4)
			case m.r.IntN(3) == 0:
				return mutex(m.key)
			}
			return slots(m.key, 1, driver.RW)
		}
		for range 150 {
			m.step()
			if m.compare(); t.Failed() {
				t.Fatalf("round %d: %s", round, strings.Join(m.log, "; "))
			}
		}
	}
}

func (m *model) did(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// seconds is a lease, a delay, or a pause. Few differ, so that some end together.
func (m *model) seconds(most int64) time.Duration {
	return time.Duration(1+m.r.Int64N(most)) * time.Second
}

// step makes one call.
func (m *model) step() {
	i, n := 0, m.r.IntN(12)
	if len(m.line) > 0 {
		i = m.r.IntN(len(m.line))
	}
	switch {
	case n < 4 || len(m.line) == 0:
		c := m.claim()
		c.TTL = m.seconds(20)
		m.did("enter %d of %d for %v", c.Weight, c.Capacity, c.TTL)
		m.line = append(m.line, member{Ticket: enter(m, m.b, c), ends: m.clock.now + c.TTL.Microseconds()})
	case n < 7:
		m.sleep(m.seconds(4))
	case n < 8:
		linger := -m.r.Int64N(2) // zero leaves a claim that lingers as it is, below zero ends it
		m.did("break %d with %d", i, linger)
		ok(m, m.b.Break(m.Context(), m.key, m.line[i].Token, driver.Break{Reason: "r", Delay: time.Duration(linger)}))
		if linger < 0 || !m.line[i].lingers {
			m.line = slices.Delete(m.line, i, i+1)
		}
	case m.line[i].lingers:
	case n < 9:
		m.line[i].TTL = m.seconds(20) // a renewal shortens no lease
		m.did("renew %d for %v", i, m.line[i].TTL)
		ok(m, renew(m, m.b, m.line[i].Ticket))
		m.line[i].ends = max(m.line[i].ends, m.clock.now+m.line[i].TTL.Microseconds())
	case n < 11:
		m.did("leave %d", i)
		leave(m, m.b, m.line[i].Ticket)
		m.line = slices.Delete(m.line, i, i+1)
	default:
		d := m.seconds(8)
		m.did("linger %d for %v", i, d)
		ok(m, m.b.Leave(m.Context(), m.line[i].Ticket, driver.Exit{Linger: d}))
		m.line[i].lingers, m.line[i].ends = true, m.clock.now+d.Microseconds()
	}
}

func (m *model) sleep(d time.Duration) {
	m.did("sleep %v", d)
	m.clock.sleep(d)
	m.line = slices.DeleteFunc(m.line, func(c member) bool { return c.ends <= m.clock.now })
}

// compare holds the line, and what its claims are told, to the rule. Mostly nobody has looked at the line since.
func (m *model) compare() {
	if m.r.IntN(3) > 0 {
		return
	}
	if m.r.IntN(2) == 0 && len(m.line) > 0 { // any call notices what has ended: here a read
		c := m.line[m.r.IntN(len(m.line))]
		if _, err := m.b.read(m.Context(), c.Ticket); err != nil != c.lingers {
			m.Errorf("a read of claim %d answers %v", c.Token, err)
		}
	}
	claims := line(m, m.b, m.key).Claims
	if len(claims) != len(m.line) {
		m.Errorf("%d claims are in line, want %d", len(claims), len(m.line))
		return
	}
	var before int64
	for i, c := range m.line {
		before += c.Weight
		got, should := claims[i], before <= c.Capacity
		if got.Token != c.Token || got.Granted != should || got.Lingering != c.lingers || got.Left.Microseconds() != c.ends-m.clock.now {
			m.Errorf("claim %d is %+v, want token %d, granted %v, lingering %v", i, got, c.Token, should, c.lingers)
		}
		if c.lingers {
			continue
		}
		if now, err := m.b.read(m.Context(), c.Ticket); err != nil || now.Granted != should || !should && now.Ahead != i {
			m.Errorf("claim %d is told granted %v, %d ahead, %v; want %v, %d", i, now.Granted, now.Ahead, err, should, i)
		}
	}
}
