package sql_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// The steps that are the same for every store.
var (
	ttl    = steps.TTL
	noWait = steps.NoWait
	must   = steps.Must
	enter  = steps.Enter
	hold   = steps.Hold
	wait   = steps.Wait
	gone   = steps.Gone
	soon   = steps.Soon
	well   = steps.Well
	unsure = steps.Unknown
	claim  = steps.Claim
	reader = steps.Reader

	granted = steps.Granted
	until   = testserver.WithinAMinute // many statements may be needed: longer than steps.Eventually
)

// progress is what many do, with a context that ends when all is done.
type progress struct {
	ctx   context.Context
	end   context.CancelFunc
	timer *time.Timer
}

// goes starts something that many do. It fails the test, and ends, where nothing goes on for a minute: a busy
// machine may take long for the whole.
func goes(t testing.TB) *progress {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(time.Minute, func() {
		t.Error("nothing went on for a minute")
		cancel()
	})
	p := &progress{ctx, func() { timer.Stop(); cancel() }, timer}
	t.Cleanup(p.end)
	return p
}

// on says that something has gone on.
func (p *progress) on() {
	if p.ctx.Err() == nil {
		p.timer.Reset(time.Minute)
	}
}

// says holds err to a kind, unless that is nil, and to words.
func says(t testing.TB, what string, err, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		t.Errorf("%s: %v; want %v", what, err, cmp.Or(kind, errors.New("an error")))
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want it to say %q", what, err, word)
		}
	}
}

// busy must be refused. Whoever tries a lock moves the claim that is alone on it from the row
// of its line to its own.
func busy(t testing.TB, b driver.Backend, key string) {
	t.Helper()
	if _, err := b.Enter(soon(t), noWait(claim(key))); !errors.As(err, new(*driver.BusyError)) {
		t.Fatalf("a try on %q answered %v; want that it is held", key, err)
	}
}

func renew(b driver.Backend, ctx context.Context, ticket driver.Ticket) error {
	return b.Renew(ctx, []driver.Ticket{ticket})[0]
}

// renewed must still be held.
func renewed(t testing.TB, b driver.Backend, ts ...driver.Ticket) {
	t.Helper()
	for i, err := range b.Renew(soon(t), ts) {
		if err != nil {
			t.Fatalf("Renew of %q: %v", ts[i].Key, err)
		}
	}
}

func leave(t testing.TB, b driver.Backend, ts ...driver.Ticket) {
	t.Helper()
	for _, ticket := range ts {
		if err := b.Leave(soon(t), ticket, driver.Exit{}); err != nil {
			t.Fatalf("Leave on %q: %v", ticket.Key, err)
		}
	}
}

// use takes a free lock and gives it back.
func use(t testing.TB, b driver.Backend, key string) {
	t.Helper()
	leave(t, b, hold(t, b, claim(key)))
}

// empty must find no live claim.
func empty(t testing.TB, b driver.Backend) {
	t.Helper()
	for l, err := range b.Lines(soon(t), "") {
		if err != nil {
			t.Fatalf("Lines: %v", err)
		}
		t.Errorf("the line of %q still has %d claims, the first is %+v; want none", l.Key, len(l.Claims), l.Claims[0])
	}
}

// leaveAll breaks whatever is in line, and must find nothing then.
func leaveAll(t testing.TB, b *sqllock.Backend) {
	t.Helper()
	for l, err := range b.Lines(soon(t), "") {
		must(t, err)
		for _, s := range l.Claims {
			// A call that was cut short may have gone on behind, and left.
			if err := b.Break(soon(t), l.Key, s.Token, driver.Break{Reason: "end of test", Delay: -1}); err != nil && !driver.Gone(err) {
				t.Fatal(err)
			}
		}
	}
	empty(t, b)
}

func permanent(err error) bool { return errors.Is(err, driver.ErrPermanent) }

func pause(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// behind runs a call on a goroutine, and returns where its answer comes.
func behind[T any](call func() T) <-chan T {
	answer := make(chan T, 1)
	go func() { answer <- call() }()
	return answer
}

func second[T any](_ T, err error) error { return err }

// verbs are a call of each method on a claim, for tests that want the same of all of them.
func verbs(b *sqllock.Backend, ticket driver.Ticket) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Enter": func(ctx context.Context) error { return second(b.Enter(ctx, claim(ticket.Key))) },
		"Await": func(ctx context.Context) error { return second(b.Await(ctx, ticket)) },
		"Renew": func(ctx context.Context) error { return renew(b, ctx, ticket) },
		"Leave": func(ctx context.Context) error { return b.Leave(ctx, ticket, driver.Exit{}) },
		"Break": func(ctx context.Context) error { return b.Break(ctx, ticket.Key, ticket.Token, driver.Break{}) },
		"Line":  func(ctx context.Context) error { return second(b.Line(ctx, ticket.Key)) },
		"Lines": func(ctx context.Context) error {
			for _, err := range b.Lines(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
