package drivertest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/internal/testmember"
)

// A law that cannot fail is no test. Each backend below is a memlock with one law
// broken, and each law must flag those that list it. A law that no broken backend
// lists fails too.

// broken is a Store that does some things wrong.
type broken struct {
	*testmember.Member
	enter   func(ctx context.Context, c driver.Claim) (driver.Ticket, error)
	again   func(ctx context.Context, c driver.Claim) (driver.Ticket, error)
	init    func(ctx context.Context) error
	await   func(ctx context.Context, t driver.Ticket) (driver.Ticket, error)
	renew   func(ctx context.Context, ts []driver.Ticket) []error
	leave   func(ctx context.Context, t driver.Ticket, e driver.Exit) error
	brk     func(ctx context.Context, key string, token int64, how driver.Break) error
	lines   func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error]
	line    func(ctx context.Context, key string) (driver.Line, error)
	alarm   func(f func(id string, gone driver.GoneError)) func()
	reserve func(ctx context.Context, t driver.Ticket, span int64) (bool, error)
	detach  func(ctx context.Context, t driver.Ticket) error
	adopt   func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error)
	close   func() error
	record  func(ctx context.Context, es []record.Entry, keep record.Bounds) error
	history func(ctx context.Context, key string, n int) ([]record.Entry, error)

	mu   sync.Mutex
	seen []driver.Ticket // of every Enter that succeeded
	n    map[string]int  // for whatever a breaker counts
}

// newBroken returns a Store that is still whole.
func newBroken() *broken {
	s := newStore()
	return &broken{
		Member: s, enter: s.Enter, again: s.Reenter, init: s.Initialise, await: s.Await, renew: s.Renew, leave: s.Leave,
		brk: s.Break, lines: s.Lines, line: s.Line, alarm: s.Alarm, reserve: s.Reserve, detach: s.Detach, adopt: s.Adopt, close: s.Close,
		record: s.Record, history: s.History, n: map[string]int{},
	}
}

func (b *broken) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := b.enter(ctx, c)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen = append(b.seen, t)
	}
	return t, err
}

func (b *broken) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return b.again(ctx, c)
}
func (b *broken) Initialise(ctx context.Context) error { return b.init(ctx) }
func (b *broken) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	return b.await(ctx, t)
}
func (b *broken) Renew(ctx context.Context, ts []driver.Ticket) []error { return b.renew(ctx, ts) }
func (b *broken) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return b.leave(ctx, t, e)
}
func (b *broken) Line(ctx context.Context, key string) (driver.Line, error) { return b.line(ctx, key) }
func (b *broken) Alarm(f func(id string, gone driver.GoneError)) func()     { return b.alarm(f) }
func (b *broken) Close() error                                              { return b.close() }

func (b *broken) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return b.brk(ctx, key, token, how)
}

func (b *broken) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return b.lines(ctx, prefix)
}

func (b *broken) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	return b.reserve(ctx, t, span)
}

func (b *broken) Detach(ctx context.Context, t driver.Ticket) error { return b.detach(ctx, t) }

func (b *broken) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	return b.adopt(ctx, t, by)
}

func (b *broken) Record(ctx context.Context, es []record.Entry, keep record.Bounds) error {
	return b.record(ctx, es, keep)
}

func (b *broken) History(ctx context.Context, key string, n int) ([]record.Entry, error) {
	return b.history(ctx, key, n)
}

// find returns the last ticket that was seen of which f says yes.
func (b *broken) find(f func(t driver.Ticket) bool) (t driver.Ticket, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range slices.Backward(b.seen) {
		if f(t) {
			return t, true
		}
	}
	return t, false
}

// known returns the last ticket of a claim.
func (b *broken) known(key, id string) (t driver.Ticket, ok bool) {
	return b.find(func(t driver.Ticket) bool { return t.Key == key && t.ID == id })
}

// count adds to a named number and returns the sum.
func (b *broken) count(name string, by int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n[name] += by
	return b.n[name]
}

// look is where the claim of t stands, without waiting.
func (b *broken) look(t driver.Ticket) (driver.Ticket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 1)
	defer cancel()
	now, err := b.Member.Await(ctx, t)
	if err == context.DeadlineExceeded {
		return t, nil
	}
	return now, err
}

// standings is the line of key.
func (b *broken) standings(key string) []driver.Standing {
	l, _ := b.Member.Line(context.Background(), key)
	return l.Claims
}

// lists has f yield lines.
func (b *broken) lists(f func(ctx context.Context, prefix string, yield func(driver.Line, error) bool)) {
	b.lines = func(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
		return func(yield func(driver.Line, error) bool) { f(ctx, prefix, yield) }
	}
}

// edit lets f change what Lines shows.
func (b *broken) edit(f func(l driver.Line) driver.Line) {
	b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
		b.Member.Lines(ctx, prefix)(func(l driver.Line, err error) bool { return yield(f(l), err) })
	})
}

// rename lets the store see other keys than its callers do.
func (b *broken) rename(f func(key string) string) {
	names := map[string]string{}
	under := func(key string) string {
		b.mu.Lock()
		defer b.mu.Unlock()
		names[f(key)] = key
		return f(key)
	}
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		key := c.Key
		c.Key = under(key)
		t, err := b.Member.Enter(ctx, c)
		t.Key = key
		return t, err
	}
	b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
		key := t.Key
		t.Key = under(key)
		t, err := b.Member.Await(ctx, t)
		t.Key = key
		return t, err
	}
	b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
		ts = slices.Clone(ts)
		for i := range ts {
			ts[i].Key = under(ts[i].Key)
		}
		return b.Member.Renew(ctx, ts)
	}
	b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
		t.Key = under(t.Key)
		return b.Member.Leave(ctx, t, e)
	}
	b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
		return b.Member.Break(ctx, under(key), token, how)
	}
	b.lists(func(ctx context.Context, prefix string, yield func(driver.Line, error) bool) {
		for l, err := range b.Member.Lines(ctx, "") {
			b.mu.Lock()
			l.Key = names[l.Key]
			b.mu.Unlock()
			if (err != nil || strings.HasPrefix(l.Key, prefix)) && !yield(l, err) {
				return
			}
		}
	})
}

// breaker is one way to break a Store, and the laws that must notice.
type breaker struct {
	name  string
	wreck func(b *broken)
	laws  string // names, with spaces between
}

// modelTest is the name under which breakers list the model test.
const modelTest = "Model"

// recorder is a tester whose failures are seen by another test.
type recorder struct {
	mu       sync.Mutex
	failed   bool
	messages []string
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// played runs f in a bubble and returns what it said, and whether it failed.
func played(t *testing.T, f func(r *recorder)) *recorder {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f(r)
		}()
		<-done
	})
	return r
}

// newStore returns a Store that keeps all laws, those of members too.
func newStore() *testmember.Member {
	return testmember.New(ballot.Membership{MaxTTL: 366 * 24 * time.Hour})
}

// judge holds a backend to one law, or to the model.
func judge(t *testing.T, law string, conf config, wreck func(b *broken)) *recorder {
	t.Helper()
	open := func() func() driver.Backend {
		b := newBroken()
		b.Member.Initialise(context.Background())
		wreck(b)
		return func() driver.Backend { return b }
	}
	conf.fresh = func() driver.Backend {
		b := newBroken()
		wreck(b)
		return b
	}
	if law == modelTest {
		return played(t, func(r *recorder) {
			for seed := uint64(0); seed < 40 && !r.Failed(); seed++ {
				done := make(chan struct{})
				go func() {
					defer close(done)
					runModel(r, open(), seed, true)
				}()
				<-done
			}
		})
	}
	for _, topic := range topics {
		for _, l := range topic.laws {
			if l.name == law {
				return played(t, func(r *recorder) { l.test(r, open(), conf) })
			}
		}
	}
	t.Fatalf("there is no law %s", law)
	return nil
}

// strict is how a healthy Store is tested; a closed one is another matter.
var strict = config{serving: true, long: true, lag: 0, fresh: func() driver.Backend { return newStore() }}

// closing is how a backend is tested whose Close ends something.
var closing = config{long: true}

func confOf(law string) config {
	switch law {
	case "ClosedBackendSaysSo", "CloseEndsAwait", "DetachedOutlivesItsProcess", "NamedClaimOutlivesItsProcess":
		return closing
	}
	return strict
}

var allBroken = slices.Concat(brokenEnters, brokenAwaits, brokenRenewals, brokenLeaves, brokenReserves, brokenDetaches,
	brokenNames, brokenReuses, brokenBreaks, brokenNotices, brokenLooks, brokenCloses, brokenBallots, brokenHistories)

func TestEveryBrokenBackendIsFlagged(t *testing.T) {
	start := time.Now()
	for _, m := range allBroken {
		t.Run(m.name, func(t *testing.T) {
			for _, law := range strings.Fields(m.laws) {
				r := judge(t, law, confOf(law), m.wreck)
				if !r.Failed() {
					t.Errorf("%s does not notice", law)
				}
				if testing.Verbose() {
					t.Logf("%s: %q", law, r.messages)
				}
			}
		})
	}
	t.Logf("took %v", time.Since(start))
}

func TestEveryLawCanFail(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range allBroken {
		for _, law := range strings.Fields(m.laws) {
			listed[law] = true
		}
	}
	names := map[string]bool{}
	for _, topic := range topics {
		for _, l := range topic.laws {
			if names[l.name] {
				t.Errorf("two laws are named %s", l.name)
			}
			names[l.name] = true
			if l.applies(newStore(), strict) && !listed[l.name] {
				t.Errorf("no broken backend is flagged by %s/%s", topic.name, l.name)
			}
		}
	}
}

func TestHealthyStoreIsNotFlagged(t *testing.T) {
	for _, topic := range topics {
		for _, l := range topic.laws {
			if !l.applies(newStore(), strict) {
				continue
			}
			if r := judge(t, l.name, strict, func(*broken) {}); r.Failed() {
				t.Errorf("%s flags a healthy store: %q", l.name, r.messages)
			}
		}
	}
	if r := judge(t, modelTest, strict, func(*broken) {}); r.Failed() {
		t.Errorf("the model flags a healthy store: %q", r.messages)
	}
}
