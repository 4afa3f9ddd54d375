package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	rule "github.com/fencelock/fencelock/internal/line"
	"github.com/redis/go-redis/v9"
)

// clock stands in for the server's in scripts: expiries can be met to the microsecond.
type clock struct {
	t     *testing.T
	rdb   *redis.Client // of the server itself
	now   int64         // µs
	start int64
}

// clocked opens a Backend whose scripts read a clock of the test.
func clocked(t *testing.T) (*Backend, *clock) {
	t.Helper()
	s := newServer(t)
	c := &clock{t: t, rdb: dial(t, s), now: time.Now().Add(time.Hour).UnixMicro()} // ahead: nothing expires by itself
	c.start = c.now
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
		"Await":        func(k driver.Ticket) error { return steps.ErrOf(b.read(ctx, k)) },
		"Break":        func(k driver.Ticket) error { return b.Break(ctx, k.Key, k.Token, driver.Break{}) },
		"Adopt":        func(k driver.Ticket) error { return steps.ErrOf(b.Adopt(ctx, k, mutex(k.Key))) },
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

func TestTombstoneIsOnlyEverProlonged(t *testing.T) {
	_, b, _ := served(t)
	c := mutex("key")
	for _, ttl := range []time.Duration{time.Minute, minTTL} {
		k := driver.Ticket{Claim: c}
		k.TTL = ttl
		wantGone(t, "Leave of a claim that never came", b.Leave(t.Context(), k, driver.Exit{Tombstone: true}))
	}
	marker := mutex("other")
	marker.TTL = minTTL
	hold(t, b, marker)
	eventually(t, "the shorter tombstone is over", func() bool { return len(line(t, b, "other").Claims) == 0 })
	wantGone(t, "Enter of an ID with a tombstone of a minute", steps.ErrOf(b.Enter(t.Context(), c)))
}

// A claim under notice that another process adopts ends then, and lingers for as long as was promised to whoever waits,
// though that is longer than its lease. A late Enter of its new ID stays out for as long.
func TestAdoptedClaimLingersAfterItsNotice(t *testing.T) {
	b, clock := clocked(t)
	k, by := hold(t, b, mutex("key")), mutex("key")
	must(t, b.Break(t.Context(), "key", k.Token, driver.Break{Reason: "soon", Notice: time.Second, Delay: time.Hour}))
	for range 2 { // the answer may be lost
		must(t, steps.ErrOf(b.Adopt(t.Context(), k, by)))
	}
	if stays := clock.rdb.PTTL(t.Context(), b.hashName("key")+"x:"+by.ID).Val(); stays < time.Hour {
		t.Errorf("a late Enter of the new ID is kept out for %v", stays)
	}
	clock.sleep(time.Hour)
	if l := line(t, b, "key"); len(l.Claims) != 1 || !l.Claims[0].Lingering || l.Claims[0].Left != time.Second {
		t.Errorf("after the notice the line is %+v", l.Claims)
	}
	clock.sleep(time.Second)
	leave(t, b, hold(t, b, mutex("key")))
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

// twins are a line in Redis, and the same line by the rule in package line, with every claim that was ever in it.
type twins struct {
	*testing.T
	b      *Backend
	clock  *clock
	r      *rand.Rand
	key    string
	claim  func() driver.Claim
	rule   rule.Line
	claims []driver.Ticket
	log    []string
}

// TestGrantsFollowTheOneRule makes random calls on one line, in which leases, notices and delays end, and compares all
// answers with those of the rule that decides everything: granted(c) ⇔ weight(c) + Σ weight(b) for every live b before
// c ≤ capacity(c).
func TestGrantsFollowTheOneRule(t *testing.T) {
	t.Parallel()
	b, clock := clocked(t)
	seed := drivertest.Seeds(t, 1)[0]
	t.Logf("seed %d", seed)
	for round := range 12 {
		w := &twins{T: t, b: b, clock: clock, r: rand.New(rand.NewPCG(seed, uint64(round))), key: fmt.Sprint(round)}
		w.claim = func() driver.Claim {
			switch {
			case round%2 == 1:
				return slots(w.key, 1+w.r.Int64N(4), 4)
			case w.r.IntN(3) == 0:
				return mutex(w.key)
			}
			return slots(w.key, 1, driver.RW)
		}
		for range 150 {
			if w.step(); t.Failed() {
				t.Fatalf("round %d: %s", round, strings.Join(w.log, "; "))
			}
		}
	}
}

func (w *twins) did(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// seconds is a lease, a delay, or a pause. Few differ, so that some end together.
func (w *twins) seconds(most int64) time.Duration {
	return time.Duration(1+w.r.Int64N(most)) * time.Second
}

// sometimes is d or zero.
func (w *twins) sometimes(d time.Duration) time.Duration { return d * time.Duration(w.r.IntN(2)) }

// pick returns one of the last claims: some are gone.
func (w *twins) pick() *driver.Ticket {
	return &w.claims[len(w.claims)-1-w.r.IntN(min(len(w.claims), 6))]
}

// now begins a step of the rule at the time of the server.
func (w *twins) now() *rule.Step {
	s := &rule.Step{Wall: time.UnixMicro(w.clock.now), Mono: time.Duration(w.clock.now-w.clock.start) * time.Microsecond}
	w.rule.Purge(s)
	return s
}

// step makes one call, and mostly nobody looks at the line after it.
func (w *twins) step() {
	if n := w.r.IntN(12); n < 3 || len(w.claims) == 0 {
		w.enter()
	} else if k := w.pick(); n < 5 {
		w.clock.sleep(w.seconds(4))
		w.did("sleep")
	} else {
		w.change(n, k)
	}
	if w.r.IntN(2) == 0 {
		w.compare()
	}
}

func (w *twins) enter() {
	c := w.claim()
	c.TTL, c.LockDelay, c.Span, c.NoWait = w.seconds(20), w.sometimes(w.seconds(8)), 1+w.r.Int64N(3), w.r.IntN(4) == 0
	c.WaitTTL = w.sometimes(c.TTL / 2)
	if w.r.IntN(8) == 0 {
		c.After = w.rule.Last + w.r.Int64N(5e6)
	}
	if again := w.r.IntN(8); again == 0 && len(w.claims) > 0 { // of one in line, perhaps with another weight
		if k := w.pick(); w.rule.Find(k.ID) != nil {
			c.ID, c.LockDelay = k.ID, k.LockDelay
		}
	} else if again == 1 {
		c.Capacity, c.Weight = 3, 1
	}
	w.did("enter %+v", c)
	got, err := w.b.Enter(w.Context(), c)
	s := w.now()
	want, wantErr := w.rule.Enter(s, c)
	if w.same(err, wantErr); want == nil || err != nil {
		return
	}
	if t := w.rule.Ticket(s, want); got.Token != t.Token || got.Granted != t.Granted || got.Left != t.Left || got.Ahead != t.Ahead ||
		got.Mark != t.Mark {
		w.Errorf("Enter answered %+v, want %+v", got, t)
	}
	w.claims = append(w.claims, got)
}

// change makes a call on a claim, which may be gone.
func (w *twins) change(n int, k *driver.Ticket) {
	ctx := w.Context()
	switch n {
	case 5, 6:
		k.TTL = w.seconds(20) // a renewal shortens no lease
		w.did("renew %d for %v", k.Token, k.TTL)
		err := renew(w, w.b, *k)
		w.same(err, w.rule.Renew(w.now(), k))
	case 7, 8:
		var e driver.Exit
		switch w.r.IntN(6) {
		case 0:
			e.IfWaiting = true
		case 1:
			e.Mark = fmt.Sprint(w.r.IntN(100))
			fallthrough
		case 2:
			e.Linger, e.Tombstone = w.sometimes(w.seconds(8)), w.r.IntN(2) == 0
		}
		w.did("leave %d by %+v", k.Token, e)
		err := w.b.Leave(ctx, *k, e)
		w.same(err, w.rule.Leave(w.now(), k, e))
	case 9:
		how := driver.Break{Reason: "r", Delay: w.sometimes(w.seconds(8)), Notice: w.sometimes(w.seconds(8))}
		if w.r.IntN(4) == 0 {
			how.Delay = -1
		}
		if slices.ContainsFunc(w.rule.Claims, func(c *rule.Claim) bool {
			return c.Token == k.Token && c.Lingering && !c.Granted
		}) {
			how.Delay = -1 // others are not agreed on for a waiter that lingers, which the core never has
		}
		w.did("break %d by %+v", k.Token, how)
		err := w.b.Break(ctx, w.key, k.Token, how)
		_, want := w.rule.Break(w.now(), k.Token, how)
		w.same(err, want)
	case 10:
		span := 1 + w.r.Int64N(9)
		w.did("reserve %d of %d", span, k.Token)
		done, err := w.b.Reserve(ctx, *k, span)
		ok(w, err)
		if w.now(); done && !w.rule.Reserve(k, span) {
			w.Error("tokens were reserved")
		}
	default:
		by := k.Claim
		by.ID, by.TTL, by.LockDelay = mutex("").ID, w.seconds(20), w.sometimes(w.seconds(8))
		w.did("adopt %d by %+v", k.Token, by)
		got, err := w.b.Adopt(ctx, *k, by)
		s := w.now()
		want, wantErr := w.rule.Adopt(s, k, &by)
		if w.same(err, wantErr); err == nil && want != nil {
			if got.Left != want.Expires-s.Mono || got.Token != want.Token {
				w.Errorf("Adopt answered %+v, want %+v", got, want)
			}
			w.claims = append(w.claims, got)
		}
	}
}

// same compares two errors. How long a tombstone stays behind what was promised differs.
func (w *twins) same(got, want error) {
	var a, b driver.GoneError
	var c, d *driver.BusyError
	gone, busy := errors.As(want, &b), errors.As(want, &d)
	switch {
	case (got == nil) != (want == nil), errors.As(got, &a) != gone, errors.As(got, &c) != busy,
		gone && (a.Left != b.Left || b.Left > 0 && a.Reason != b.Reason), busy && (c.Ahead != d.Ahead || c.Token != d.Token):
		w.Errorf("%s: got %v; want %v", w.log[len(w.log)-1], got, want)
	}
	for _, is := range []error{driver.ErrKind, driver.ErrReused, driver.ErrGranted} {
		if errors.Is(got, is) != errors.Is(want, is) {
			w.Errorf("%s: got %v; want %v", w.log[len(w.log)-1], got, want)
		}
	}
}

// compare looks at the line, and at one claim of it.
func (w *twins) compare() {
	got, s := line(w, w.b, w.key), w.now()
	want := w.rule.Describe(s, w.key)
	for i := range got.Claims {
		got.Claims[i].Note, got.Claims[i].Since = "", time.Time{} // when a claim was granted depends on who looked
	}
	for i := range want.Claims {
		want.Claims[i].Note, want.Claims[i].Since = "", time.Time{}
	}
	if w.did("look"); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		w.Errorf("the line is\n%+v\nwant\n%+v", got, want)
	}
	for _, k := range w.claims[max(len(w.claims)-3, 0):] {
		c := w.rule.Find(k.ID)
		if c == nil {
			continue
		}
		t := w.rule.Ticket(s, c)
		if now, err := w.b.read(w.Context(), k); err != nil || now.Granted != t.Granted || now.Ahead != t.Ahead || now.Left != t.Left {
			w.Errorf("claim %d is told %+v, %v; want %+v", k.Token, now, err, t)
		}
	}
}
