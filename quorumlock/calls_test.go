package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
)

// TestLeaveComesBehindTheEnterUnderWay: the third node gets the Enter late, when the lock
// was granted and given back. A Leave that overtook it there would find nothing, and what
// enters then would keep others out for a whole lease.
func TestLeaveComesBehindTheEnterUnderWay(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		nodes[2].before = 50 * time.Millisecond
		start := time.Now()
		k, err := b.Enter(t.Context(), exclusive("ours"))
		check(t, err)
		check(t, b.Leave(t.Context(), k, driver.Exit{}))
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
		check(t, b.Settle(t.Context()))
		if n := nodes[2].count(t); n != 1 {
			t.Errorf("%d claims stand on the third node after Enter, Leave and Enter; want 1", n)
		}
		check(t, b.Leave(t.Context(), k, driver.Exit{}))
		noneStays(t, b, "after the last Leave", nodes[2])
	})
}

// TestCloseGivesUpOnASlowNode: the third node applies an Enter and answers late, so the
// Leave behind it waits. Close cuts both off, and the node keeps the claim until its lease
// ends. Settle waits for both.
func TestCloseGivesUpOnASlowNode(t *testing.T) {
	for settles, want := range map[bool]int{false: 1, true: 0} {
		three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
			nodes[2].after = 2 * time.Second
			k, err := b.Enter(t.Context(), exclusive("ours"))
			check(t, err)
			check(t, b.Leave(t.Context(), k, driver.Exit{}))
			if settles {
				check(t, b.Settle(t.Context()))
			}
			start := time.Now()
			check(t, b.Close())
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
			check(t, b.Leave(t.Context(), k, driver.Exit{}))
			pause(time.Duration(6*i+1) * time.Millisecond)
		}
	})
}

// TestRefusalDoesNotHurryTheNextVote: what was said of one vote, that it is lost, must not
// be taken for something about the next, which would give up on nodes that are slow.
func TestRefusalDoesNotHurryTheNextVote(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		for _, n := range nodes[:2] {
			c := exclusive("another")
			c.Ballot = time.Now().UnixMicro()
			_, err := n.Store.Enter(t.Context(), c)
			check(t, err)
		}
		for range 20 {
			if _, err := b.Enter(t.Context(), exclusive("ours")); !errors.As(err, new(*driver.BusyError)) {
				t.Fatalf("Enter where two of three are taken answered %v; want a *BusyError", err)
			}
			c := exclusive("free")
			c.Key = "another"
			slowly(t, b, nodes, 100*time.Millisecond)
			k, err := b.Enter(t.Context(), c)
			if err != nil {
				t.Fatalf("Enter of what is free, on nodes that take 100 ms, answered %v", err)
			}
			slowly(t, b, nodes, 0)
			check(t, b.Leave(t.Context(), k, driver.Exit{}))
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
	check(t, b.Settle(t.Context()))
	for _, n := range nodes {
		n.before = d
	}
}

// TestAnswersBehindAMajorityAreNotCounted: the third node answers when the caller has its
// ticket. What it says belongs to nobody any more.
func TestAnswersBehindAMajorityAreNotCounted(t *testing.T) {
	three(t, func(t *testing.T, nodes []*node, b *quorumlock.Backend) {
		nodes[2].after = 10 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		for range 3 {
			pause(time.Millisecond)
			k, err := b.Enter(ctx, exclusive("ours"))
			check(t, err)
			check(t, b.Leave(ctx, k, driver.Exit{}))
		}
		noneStays(t, b, "in the end", nodes...)
	})
}
