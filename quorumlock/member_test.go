package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
	"github.com/fencelock/fencelock/quorumlock"
)

// astray is a member of which a request may reach another server.
type astray struct {
	*node
	other   ballot.Member
	strayed atomic.Bool // the connection leads to the other server
}

func (a *astray) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if a.strayed.Load() {
		pause(time.Millisecond) // the claim for the other server is there
		return a.other.Enter(ctx, c)
	}
	return a.node.Enter(ctx, c)
}

func (a *astray) Line(ctx context.Context, key string) (driver.Line, error) {
	if a.strayed.Load() {
		return a.other.Line(ctx, key)
	}
	return a.node.Line(ctx, key)
}

// One vote reaches the wrong server: its connection is stale, or the address belongs to another
// server for a moment. A majority grants the lock all the same, what was held stays held, and
// later calls find nothing wrong.
func TestVoteThatReachesTheWrongServerEndsNothing(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, _ *quorumlock.Backend) {
		stray := &astray{node: nodes[1], other: nodes[0]}
		b := quorumlock.New([]driver.Backend{nodes[0], stray, nodes[2]}, nil)
		c, err := fencelock.New(b, nil)
		steps.Must(t, err)
		defer c.Close()
		held, err := c.Lock(t.Context(), "held")
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		for range 3 {
			stray.strayed.Store(true)
			l, err := c.TryLock(t.Context(), "k")
			steps.Must(t, err)
			steps.Must(t, b.Settle(t.Context()))
			stray.strayed.Store(false)
			steps.Must(t, l.Release(t.Context()))
			steps.Must(t, b.Settle(t.Context()))
		}
		pause(time.Minute)
		steps.Must(t, held.Err())
		steps.Must(t, held.Release(t.Context()))
		noneStays(t, b, "after all was released", nodes...)
	})
}

// One server has two names. Its second vote does not count, so a majority needs all others.
func TestOneStoreUnderTwoNamesHasOneVote(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, _ *quorumlock.Backend) {
		b := quorumlock.New([]driver.Backend{nodes[0], &astray{node: nodes[0]}, nodes[2]}, nil)
		defer b.Close()
		k, err := b.Enter(t.Context(), exclusive("the first claim"))
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		for i, n := range []*node{nodes[0], nodes[2]} {
			if n := n.count(t); n != 1 {
				t.Errorf("%d claims stand on store %d; want 1", n, i)
			}
		}
		if _, err := b.Enter(t.Context(), exclusive("the second claim")); !errors.As(err, new(*driver.BusyError)) {
			t.Errorf("Enter beside the claim answered %v; want a *BusyError", err)
		}
		steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
		steps.Must(t, b.Settle(t.Context()))
		pause(time.Millisecond) // the clock is past the ballots
		taken(t, nodes[2])
		if _, err := b.Enter(t.Context(), exclusive("the third claim")); err == nil {
			t.Error("one store of two granted a lock with two votes")
		}
	})
}

// A firewall swallows what is sent to one member of three, while a program takes and releases
// 1,000 locks a second. What waits for that member is bounded, and the member takes part again
// when it responds.
//
// Thousands of timers in a bubble crash the race detector (golang/go#78156), so a child without it
// plays this.
func TestMemberThatSwallowsRequestsIsAskedNoMore(t *testing.T) {
	if elsewhere(t) {
		return
	}
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		free := func(i int) {
			c := exclusive(fmt.Sprint("of ", i))
			c.Key, c.TTL = fmt.Sprint("lock ", i), 30*time.Second
			k, err := b.Enter(t.Context(), c)
			steps.Must(t, err)
			steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
			_, err = b.Line(t.Context(), c.Key)
			steps.Must(t, err)
		}
		free(0)
		steps.Must(t, b.Settle(t.Context()))
		nodes[1].dark.Store(true)
		before, most := runtime.NumGoroutine(), 0
		for i := range 20_000 {
			free(i)
			pause(time.Millisecond)
			most = max(most, runtime.NumGoroutine()-before)
		}
		t.Logf("%d goroutines at most", most)
		if most > 6_000 {
			t.Errorf("%d goroutines wait for a member that does not respond", most)
		}

		nodes[1].dark.Store(false)
		pause(30 * time.Second)
		k, err := b.Enter(t.Context(), exclusive("again"))
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		if n := nodes[1].count(t); n != 1 {
			t.Errorf("the member that responds again has %d claims; want 1", n)
		}
		steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
	})
}

// A program that was idle sends more at once than may be under way to a member that does not
// respond. All members respond, a little late: none counts as silent.
func TestBurstOfRequestsIsNotRefused(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		for _, n := range nodes {
			n.after = 500 * time.Millisecond
		}
		pause(time.Hour)
		for i := range 2_000 {
			go func() {
				c := exclusive(fmt.Sprint("of ", i))
				c.Key = fmt.Sprint("lock ", i)
				k, err := b.Enter(t.Context(), c)
				if err != nil {
					t.Errorf("the lock %d of a burst: %v", i, err)
					return
				}
				if err := b.Leave(t.Context(), k, driver.Exit{}); err != nil {
					t.Errorf("the release %d of a burst: %v", i, err)
				}
			}()
			pause(time.Millisecond)
		}
		pause(time.Minute)
		synctest.Wait()
	})
}

// named is a member that knows which store it is.
type named struct {
	*node
	id string
}

func (n *named) StoreID(context.Context) (string, error) { return n.id, nil }

// Two names of one server are found before anything goes wrong: by Initialise, by Distinct, and by
// the doctor. A member that does not know its store is left out.
func TestOneStoreUnderTwoNamesIsReported(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, _ *quorumlock.Backend) {
		members := []driver.Backend{&named{nodes[0], "a"}, &named{nodes[1], "b"}, &named{nodes[2], "a"}}
		b := quorumlock.New(members, &quorumlock.Options{Names: []string{"one", "two", "three"}})
		defer b.Close()
		for what, err := range map[string]error{
			"Distinct": b.Distinct(t.Context()), "Initialise": b.Initialise(t.Context()),
		} {
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "node 1 (one) and node 3 (three)") {
				t.Errorf("%s returned %v; want an error that names both", what, err)
			}
		}
		e, err := b.Examine(t.Context(), time.Minute)
		steps.Must(t, err)
		found := func(f health.Finding) bool {
			return f.Code == "quorum-same-store" && f.Severity == health.Error
		}
		if !slices.ContainsFunc(e.Findings, found) {
			t.Errorf("the doctor did not find the store with two names: %+v", e.Findings)
		}

		members[2] = nodes[2]
		sound := quorumlock.New(members, nil)
		defer sound.Close()
		steps.Must(t, sound.Distinct(t.Context()))
		steps.Must(t, sound.Initialise(t.Context()))
	})
}

// A quorum has refused, and done nothing, if too few members are left that may have the claim. A
// member that did not answer may have it.
func TestQuorumKnowsWhenNothingHappened(t *testing.T) {
	now, good := driver.Refused(errors.New("read-only")), driver.Permanent(errors.New("no right"))
	silent := errors.New("connection refused")
	for name, tt := range map[string]struct {
		errs             [3]error
		refused, forGood bool
	}{
		"no quorum yet":               {[3]error{&ballot.QuarantineError{}, &ballot.QuarantineError{}, &ballot.QuarantineError{}}, true, false},
		"all refuse":                  {[3]error{now, now, now}, true, false},
		"two refuse, one has it":      {[3]error{now, now, nil}, true, false},
		"two refuse, one is silent":   {[3]error{now, now, silent}, true, false},
		"one refuses, two are silent": {[3]error{now, silent, silent}, false, false},
		"one has it, two are silent":  {[3]error{nil, silent, silent}, false, false},
		"one refuses, one each":       {[3]error{now, silent, nil}, false, false},
		"all refuse for good":         {[3]error{good, good, good}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := quorumOf(t, stores(t, 3), func(i int, s *testmember.Member) driver.Backend {
				return &node{Member: s, refuses: tt.errs[i]}
			})
			_, err := b.Enter(t.Context(), exclusive("ours"))
			if err == nil || errors.Is(err, driver.ErrRefused) != tt.refused ||
				errors.Is(err, driver.ErrPermanent) != tt.forGood {
				t.Errorf("Enter answered %v; want refused %v, for good %v", err, tt.refused, tt.forGood)
			}
		})
	}
}

// Members that were not asked at the same moment first are new until different moments. What is said of them is one
// thing, and for how long no lock is granted.
func TestNewMembersSayOneThing(t *testing.T) {
	b := quorumOf(t, stores(t, 3), func(i int, s *testmember.Member) driver.Backend {
		left := []time.Duration{291 * time.Second, 298 * time.Second, 294 * time.Second}[i]
		return &node{Member: s, refuses: &ballot.QuarantineError{Left: left}}
	})
	_, err := b.Enter(t.Context(), exclusive("ours"))
	const want = "(each of the 3 nodes: it is new, or has lost its data or been restarted, and grants no lock for another 4m58s."
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Enter answered %v; want %q", err, want)
	}
}

// A member that refuses a Leave for now still has the claim, so it is asked again.
func TestLeaveThatAMemberRefusesIsRepeated(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		held, err := b.Enter(t.Context(), steps.TTL(exclusive("ours"), time.Minute))
		steps.Must(t, err)
		for _, n := range nodes {
			n.refusals.Store(2)
		}
		_ = b.Leave(t.Context(), held, driver.Exit{})
		pause(30 * time.Second) // half of the lease
		for i, n := range nodes {
			steps.Same(t, fmt.Sprint("claims stand on node ", i), n.count(t), 0)
		}
	})
}
