package quorumlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testmember"
	"github.com/fencelock/fencelock/quorumlock"
)

// node is a member of which a test may change what it answers, and when.
type node struct {
	*testmember.Member
	short, after time.Duration // a lease so short is granted, and so late is it said
	before       time.Duration // so late does an Enter arrive
	slow         time.Duration // so late does Renew answer
	refuses      error         // what Enter answers, if it is set
	refusals     atomic.Int32  // so many Leaves are refused, as by a server that has become read-only
	dark         atomic.Bool   // it swallows what it is sent
	reentered    atomic.Int32
}

// swallowed waits for the end of ctx if n is dark.
func (n *node) swallowed(ctx context.Context) error {
	if !n.dark.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (n *node) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := n.swallowed(ctx); err != nil {
		return err
	}
	if n.refusals.Add(-1) >= 0 {
		return driver.Refused(errors.New("read-only"))
	}
	return n.Member.Leave(ctx, t, e)
}

func (n *node) Line(ctx context.Context, key string) (driver.Line, error) {
	if err := n.swallowed(ctx); err != nil {
		return driver.Line{}, err
	}
	return n.Member.Line(ctx, key)
}

func (n *node) Renew(ctx context.Context, ts []driver.Ticket) []error {
	pause(n.slow)
	return n.Member.Renew(ctx, ts)
}

func (n *node) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := cmp.Or(n.refuses, n.swallowed(ctx)); err != nil {
		return driver.Ticket{}, err
	}
	if n.before > 0 {
		late := time.NewTimer(n.before)
		defer late.Stop()
		select {
		case <-late.C:
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		}
	}
	t, err := n.Member.Enter(ctx, c)
	if n.short > 0 {
		t.TTL, t.Left = min(t.TTL, n.short), min(t.Left, n.short)
	}
	select {
	case <-time.After(n.after):
		return t, err
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
}

func (n *node) Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	n.reentered.Add(1)
	return n.Member.Reenter(ctx, c)
}

// count returns how many claims stand in the line of "k".
func (n *node) count(t *testing.T) int {
	t.Helper()
	l, err := n.Line(t.Context(), "k")
	steps.Must(t, err)
	return len(l.Claims)
}

// noneStays waits until nothing is under way, and then holds nodes to having no claim.
func noneStays(t *testing.T, b *quorumlock.Backend, when string, nodes ...*node) {
	t.Helper()
	steps.Must(t, b.Settle(t.Context()))
	for i, n := range nodes {
		if n := n.count(t); n != 0 {
			t.Errorf("%d claims stand on node %d of the %d looked at, %s; want none", n, i, len(nodes), when)
		}
	}
}

// three runs f in virtual time, with three nodes and a view of them.
func three(t *testing.T, f func(t *testing.T, nodes []*node, b *quorumlock.Backend)) {
	several(t, 3, f)
}

func several(t *testing.T, n int, f func(t *testing.T, nodes []*node, b *quorumlock.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]*node, n)
		b := quorumOf(t, stores(t, n), func(i int, s *testmember.Member) driver.Backend {
			nodes[i] = &node{Member: s}
			return nodes[i]
		})
		f(t, nodes, b)
	})
}

func exclusive(id string) driver.Claim {
	return driver.Claim{Key: "k", ID: id, Capacity: driver.RW, Weight: driver.RW, TTL: 10 * time.Second, NoWait: true, Span: 1}
}

// TestAttemptThatFailedLeavesEveryNode: if a node kept a refused claim, three clients that come at
// once could keep one node each from the others, and nobody would hold the lock.
func TestAttemptThatFailedLeavesEveryNode(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		taken(t, nodes[:2]...)
		_, err := b.Enter(t.Context(), exclusive("ours"))
		if busy := (*driver.BusyError)(nil); !errors.As(err, &busy) {
			t.Errorf("Enter where two of three are taken answered %v; want a *BusyError", err)
		}
		noneStays(t, b, "after Enter was refused", nodes[2])
	})
}

// TestOneOfThoseThatCameInTheSameMicrosecondWins: a job starts on three machines when their clocks
// show midnight. Each reaches one node first. All have the same token, and are not one holder.
func TestOneOfThoseThatCameInTheSameMicrosecondWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, midnight := stores(t, 3), time.Now()
		won := make(chan driver.Ticket, len(all))
		var group sync.WaitGroup
		for client := range all {
			b := quorumOf(t, all, func(i int, s *testmember.Member) driver.Backend {
				n := &node{Member: s}
				if i != client {
					n.before, n.after = time.Millisecond, time.Millisecond
				}
				return n
			})
			b.SetClock(func() time.Time { return midnight })
			group.Go(func() {
				k, err := b.Enter(t.Context(), exclusive(fmt.Sprint("client ", client)))
				if busy := (*driver.BusyError)(nil); err == nil {
					won <- k
				} else if !errors.As(err, &busy) {
					t.Errorf("a try beside two others answered %v; want a grant or a *BusyError", err)
				}
			})
		}
		group.Wait()
		steps.Same(t, "tries of three in one microsecond that were granted", len(won), 1)
	})
}

// TestMajorityThatComesTooLateIsNone: nodes may grant less than they were asked for. When the last
// of a majority answers, the lease may be over.
func TestMajorityThatComesTooLateIsNone(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		for _, n := range nodes {
			n.short, n.after = 150*time.Millisecond, 200*time.Millisecond
		}
		k, err := b.Enter(t.Context(), exclusive("ours"))
		if err == nil {
			t.Errorf("a lease of %v that was granted after %v is a grant: %+v", nodes[0].short, nodes[0].after, k)
		}
		noneStays(t, b, "after Enter came too late", nodes...)
	})
}

// TestMinorityKeepsNoClaimAlive: two of three have lost a claim, so its holder is told that it is
// gone. The third must not bring it back to another, whatever is still unanswered.
func TestMinorityKeepsNoClaimAlive(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		k, err := b.Enter(t.Context(), exclusive("ours"))
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		for _, n := range nodes[:2] {
			n.Flush()
			steps.Must(t, n.Initialise(t.Context()))
		}
		nodes[2].slow, nodes[1].slow = 10*time.Millisecond, 20*time.Millisecond
		if err := b.Renew(t.Context(), []driver.Ticket{k})[0]; !driver.Gone(err) {
			t.Errorf("Renew of a claim that one of three has kept answered %v; want a GoneError", err)
		}
		noneStays(t, b, "which keeps others out", nodes[2])
		for i, n := range nodes[:2] {
			if n.reentered.Load() != 0 {
				t.Errorf("a claim that no majority has was sent back to node %d", i)
			}
		}
	})
}

// TestBrokenClaimIsNotSentBack: an operator breaks a claim on one node of three. The
// others keep it alive, but what an operator has ended there is not to come back.
func TestBrokenClaimIsNotSentBack(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		k, err := b.Enter(t.Context(), exclusive("ours"))
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		steps.Must(t, nodes[0].Break(t.Context(), k.Key, k.Token, driver.Break{Reason: "maintenance"}))
		steps.Well(t, "Renew of a claim that two of three have kept", b.Renew(t.Context(), []driver.Ticket{k})[0])
		steps.Must(t, b.Settle(t.Context()))
		if n := nodes[0].reentered.Load(); n != 0 {
			t.Errorf("it was sent back to the node where an operator broke it, %d times", n)
		}
	})
}

// taken has others hold the lock on these nodes, each with a ballot of its own.
func taken(t *testing.T, nodes ...*node) {
	t.Helper()
	for i, n := range nodes {
		c := exclusive(fmt.Sprint("another ", i))
		c.Ballot = time.Now().UnixMicro() + int64(i)
		_, err := n.Member.Enter(t.Context(), c)
		steps.Must(t, err)
	}
}

// TestLeaveComesBehindTheEnterUnderWay: a Leave that overtook its Enter on a slow node would find
// nothing, and the claim would keep others out for a whole lease.
func TestLeaveComesBehindTheEnterUnderWay(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		nodes[2].before = 50 * time.Millisecond
		start := time.Now()
		k, err := b.Enter(t.Context(), exclusive("ours"))
		steps.Must(t, err)
		steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
		if took := time.Since(start); took != 0 {
			t.Errorf("a majority that answers at once took %v to grant and to let go", took)
		}
		noneStays(t, b, "after Enter and Leave", nodes[2])
		// The same claim comes again, behind both, and is to be inside in the end.
		for range 2 {
			if err := b.Leave(t.Context(), k, driver.Exit{}); err != nil && !driver.Gone(err) {
				t.Fatal(err)
			}
			pause(time.Millisecond)
			if k, err = b.Enter(t.Context(), exclusive("ours")); err != nil {
				t.Fatal(err)
			}
		}
		steps.Must(t, b.Settle(t.Context()))
		steps.Same(t, "claims stand on the third node after Enter, Leave and Enter", nodes[2].count(t), 1)
		steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
		noneStays(t, b, "after the last Leave", nodes[2])
	})
}

// TestCloseGivesUpOnASlowNode: Close cuts off an Enter that a node answers late and the Leave
// behind it, so the node keeps the claim for its lease. Settle waits for both.
func TestCloseGivesUpOnASlowNode(t *testing.T) {
	for settles, want := range map[bool]int{false: 1, true: 0} {
		three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
			nodes[2].after = 2 * time.Second
			k, err := b.Enter(t.Context(), exclusive("ours"))
			steps.Must(t, err)
			steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
			if settles {
				steps.Must(t, b.Settle(t.Context()))
			}
			start := time.Now()
			steps.Must(t, b.Close())
			if took := time.Since(start); took > 500*time.Millisecond {
				t.Errorf("Close took %v", took)
			}
			if n := nodes[2].count(t); n != want {
				t.Errorf("settled %v: %d claims stand on the slow node after Close; want %d", settles, n, want)
			}
			pause(k.TTL)
			noneStays(t, b, "after a lease", nodes...)
		})
	}
}

// TestCallsThatShareAContextHaveAllTheirTime: a call that begins later than others has as
// long as the first one, or slow nodes would look dead to it.
func TestCallsThatShareAContextHaveAllTheirTime(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		for i := range 20 {
			c := exclusive(fmt.Sprint("claim ", i))
			c.TTL = time.Second // its calls have as long
			slowly(t, b, nodes, time.Duration(i%2)*980*time.Millisecond)
			k, err := b.Enter(t.Context(), c)
			if err != nil {
				t.Fatalf("%s: %v", c.ID, err)
			}
			steps.Must(t, b.Leave(t.Context(), k, driver.Exit{}))
			pause(time.Duration(6*i+1) * time.Millisecond)
		}
	})
}

// TestRefusalDoesNotWaitForANodeThatHangs: two of three are taken, by two others. That is
// a refusal, and whoever asked need not wait for what the third might say of it.
func TestRefusalDoesNotWaitForANodeThatHangs(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		taken(t, nodes[:2]...)
		nodes[2].before = time.Hour
		start := time.Now()
		if _, err := b.Enter(t.Context(), exclusive("ours")); !errors.As(err, new(*driver.BusyError)) {
			t.Errorf("Enter where two of three are taken answered %v; want a *BusyError", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it was refused after %v", took)
		}
	})
}

// slowly has an Enter take so long from now on to reach the nodes.
func slowly(t *testing.T, b *quorumlock.Backend, nodes []*node, d time.Duration) {
	t.Helper()
	steps.Must(t, b.Settle(t.Context()))
	for _, n := range nodes {
		n.before = d
	}
}

// TestReasonIsThatOfTheBreakThatEndedIt: an operator gives notice, and another one breaks the claim at once. Neither
// reaches all nodes. The holder hears of the break that a majority knows, whichever node answers last.
func TestReasonIsThatOfTheBreakThatEndedIt(t *testing.T) {
	for at := range 9 {
		last, place := at/3, at%3 // the node that knows of the notice alone, and whether it answers first
		three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
			ticket, err := b.Enter(t.Context(), exclusive("ours"))
			steps.Must(t, err)
			steps.Must(t, b.Settle(t.Context()))
			for i, n := range nodes {
				n.slow = time.Duration((place+i-last+3)%3) * time.Second
				how := driver.Break{Reason: "two", Delay: -1}
				if i == last {
					how = driver.Break{Reason: "one", Delay: -1, Notice: time.Minute}
				}
				steps.Must(t, n.Break(t.Context(), "k", ticket.Token, how))
			}
			want := driver.GoneError{Reason: "two", Broken: true}
			what := fmt.Sprintf("with a notice at node %d alone, which answers as %d: ", last, place)
			steps.Is(t, what+"Renew", b.Renew(t.Context(), []driver.Ticket{ticket})[0], want)
			steps.Is(t, what+"Await", steps.ErrOf(b.Await(t.Context(), ticket)), want)
			steps.Is(t, what+"Enter", steps.ErrOf(b.Enter(t.Context(), ticket.Claim)), want)
		})
	}
}

// TestNoticeOfAMajorityIsNotShortenedByAFew: an operator gives ten minutes, which has reached two nodes when another
// one, who knows nothing of it, gives one minute. The late node hears only of that, and may answer first.
func TestNoticeOfAMajorityIsNotShortenedByAFew(t *testing.T) {
	for late := range 3 {
		three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
			ticket, err := b.Enter(t.Context(), exclusive("ours"))
			steps.Must(t, err)
			steps.Must(t, b.Settle(t.Context()))
			for i, n := range nodes {
				n.slow = time.Second
				for _, how := range []driver.Break{{Reason: "one", Notice: 10 * time.Minute}, {Reason: "two", Notice: time.Minute}} {
					if how.Delay = -1; i != late || how.Reason == "two" {
						steps.Must(t, n.Break(t.Context(), "k", ticket.Token, how))
					}
				}
			}
			nodes[late].slow = 0
			var notice driver.GoneError
			err = b.Renew(t.Context(), []driver.Ticket{ticket})[0]
			if !errors.As(err, &notice) || notice.Reason != "two" || notice.Left < 9*time.Minute {
				t.Errorf("with one minute at node %d and ten at the others Renew returned %v; want a notice of ten", late, err)
			}
		})
	}
}

// TestWaiterOutlivesAPauseOfANodeThatItNeeds: two of five are down, and another stands still for a moment while a
// client waits. What was sent there and had no answer must not come back, so that wish takes no part there any more.
// The client wishes anew.
func TestWaiterOutlivesAPauseOfANodeThatItNeeds(t *testing.T) {
	several(t, 5, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		held, err := b.Enter(t.Context(), steps.TTL(exclusive("theirs"), 5*time.Minute))
		steps.Must(t, err)
		steps.Must(t, b.Settle(t.Context()))
		nodes[1].dark.Store(true)
		got := wishes(t, nodes, b)
		pause(10 * time.Second)
		nodes[2].dark.Store(true)
		pause(10 * time.Second)
		nodes[2].dark.Store(false)
		pause(10 * time.Second)
		released := time.Now()
		steps.Must(t, b.Leave(t.Context(), held, driver.Exit{}))
		if d := (<-got).Sub(released); d > 2*time.Second {
			t.Errorf("a lock that was free was granted after %v", d)
		}
	})
}

// Nobody holds the lock, and nobody knows what came of the first request for it.
func TestFreeLockOutlivesAPauseOfANodeThatIsNeeded(t *testing.T) {
	several(t, 5, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		nodes[1].refuses = driver.Refused(errors.New("connection refused"))
		nodes[2].dark.Store(true)
		got := wishes(t, nodes, b)
		pause(10 * time.Second)
		nodes[2].dark.Store(false)
		back := time.Now()
		if d := (<-got).Sub(back); d > 15*time.Second { // the tombstone lasts for 30
			t.Errorf("a lock that was free was granted after %v", d)
		}
	})
}

// wishes has a client lock while the first node is down, and tells when it was granted.
func wishes(t *testing.T, nodes []*node, b *quorumlock.Backend) <-chan time.Time {
	nodes[0].refuses = driver.Refused(errors.New("connection refused"))
	c, got := testclient.New(t, b, nil), make(chan time.Time, 1)
	go func() {
		_, err := c.Lock(t.Context(), "k", fencelock.Wait(5*time.Minute))
		steps.OK(t, err)
		got <- time.Now()
	}()
	return got
}
