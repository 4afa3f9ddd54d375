package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
	"github.com/fencelock/fencelock/quorumlock"
)

// lister is a node that takes its time for each line that it shows.
type lister struct {
	*node
	each time.Duration // 0: it never says anything; below 0: it refuses
	why  error         // then
}

func (n *lister) Line(ctx context.Context, key string) (driver.Line, error) {
	switch {
	case n.each == 0:
		<-ctx.Done()
		return driver.Line{}, ctx.Err()
	case n.each < 0:
		return driver.Line{}, n.why
	}
	return n.node.Line(ctx, key)
}

func (n *lister) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		if n.each < 0 {
			yield(driver.Line{}, n.why)
			return
		}
		for l, err := range n.node.Lines(ctx, prefix) {
			var next <-chan time.Time
			if n.each > 0 {
				next = time.After(n.each)
			}
			select {
			case <-next:
			case <-ctx.Done():
				yield(driver.Line{}, ctx.Err())
				return
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

var errRefuses = errors.New("the server refuses")

// listing runs f in virtual time, with ten claims on three nodes that take so long for
// each line.
func listing(t *testing.T, each []time.Duration, f func(t *testing.T, b *quorumlock.Backend, nodes []*node)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]*node, len(each))
		b := quorumOf(t, stores(t, len(each)), func(i int, s *testmember.Member) driver.Backend {
			nodes[i] = &node{Member: s}
			return &lister{nodes[i], each[i], errRefuses}
		})
		for i := range 10 {
			c := exclusive(fmt.Sprint("claim ", i))
			c.Key, c.TTL = fmt.Sprint("key ", i), time.Minute
			_, err := b.Enter(t.Context(), c)
			steps.Must(t, err)
		}
		synctest.Wait() // a majority was enough for that, and the last node may be told later
		f(t, b, nodes)
	})
}

// listed counts the lines that a listing shows, and those of them whose claim is granted.
func listed(t *testing.T, ctx context.Context, b *quorumlock.Backend) (lines, granted int, err error) {
	t.Helper()
	for l, err := range b.Lines(ctx, "") {
		if err != nil {
			return lines, granted, err
		}
		lines++
		for _, c := range l.Claims {
			if c.Granted {
				granted++
			}
		}
	}
	return lines, granted, nil
}

// TestListingDoesNotWaitForANodeThatHangs: a majority has answered. What the last node
// could still say of a claim that one of them has is waited for, but not forever. The majority
// has the time that it needs: a bound of our own would make the list of a large store fail forever.
func TestListingDoesNotWaitForANodeThatHangs(t *testing.T) {
	second := time.Second
	listing(t, []time.Duration{second, second, 0}, func(t *testing.T, b *quorumlock.Backend, nodes []*node) {
		start := time.Now()
		lines, granted, err := listed(t, t.Context(), b)
		if took := time.Since(start); lines != 10 || granted != 10 || err != nil || took != 10*time.Second {
			t.Errorf("after %v a list of 10 locks has %d, %d of them held, and error %v; want all after 10s", took, lines, granted, err)
		}

		c := exclusive("half")
		c.Ballot = time.Now().UnixMicro()
		_, err = nodes[0].Member.Enter(t.Context(), c)
		steps.Must(t, err)
		start = time.Now()
		lines, granted, err = listed(t, t.Context(), b)
		if took := time.Since(start); lines != 11 || granted != 10 || err != nil || took > 15*time.Second {
			t.Errorf("after %v a list with a claim that one node of three has shows %d, %d of them held, and error %v; want 11, 10 held, soon",
				took, lines, granted, err)
		}
	})
}

// TestLooksSayWhetherToAskAgain: as many as a majority needs refuse, for good or not. What the others say is of no
// matter, and they may never say anything.
func TestLooksSayWhetherToAskAgain(t *testing.T) {
	never := driver.Permanent(errors.New("the password is wrong"))
	for _, c := range []struct {
		whys []error
		want bool
	}{
		{[]error{never, never, nil}, true},
		{[]error{nil, never, never, never, nil}, true},
		{[]error{nil, never, errRefuses, never, nil}, false},
		{[]error{never, errRefuses, nil}, false},
		{[]error{errRefuses, errRefuses, errRefuses}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := quorumOf(t, stores(t, len(c.whys)), func(i int, s *testmember.Member) driver.Backend {
				l := &lister{&node{Member: s}, 0, c.whys[i]}
				if l.why != nil {
					l.each = -1
				}
				return l
			})
			start := time.Now()
			_, one := b.Line(t.Context(), "k")
			_, _, all := listed(t, t.Context(), b)
			steps.Same(t, "time that it takes", time.Since(start), 0)
			for _, err := range []error{one, all} {
				if err == nil || errors.Is(err, driver.ErrPermanent) != c.want {
					t.Errorf("nodes that answer %v: %v; want a permanent error: %t", c.whys, err, c.want)
				}
			}
		})
	}
}

// TestLineThatANodeShowsTwiceHasItsVoteOnce: a store that is changed while it is read may do so.
func TestLineThatANodeShowsTwiceHasItsVoteOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := stores(t, 3)
		taken(t, &node{Member: all[0]})
		b := quorumOf(t, all, func(_ int, s *testmember.Member) driver.Backend { return stutter{&node{Member: s}} })
		if lines, granted, err := listed(t, t.Context(), b); lines != 0 || err != nil {
			t.Errorf("a claim that one node of three has is listed %d times, %d of them as held, %v", lines, granted, err)
		}
	})
}

// stutter is a node that shows each line twice.
type stutter struct{ *node }

func (n stutter) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	return func(yield func(driver.Line, error) bool) {
		for l, err := range n.node.Lines(ctx, prefix) {
			for range 2 {
				if !yield(l, err) {
					return
				}
			}
		}
	}
}

// TestLooksWithoutAMajorityEnd: two of three hang. One line is one request, and the caller is told soon
// which nodes say nothing. Of a list nobody but the caller knows how long it is to be waited for.
func TestLooksWithoutAMajorityEnd(t *testing.T) {
	listing(t, []time.Duration{time.Second, 0, 0}, func(t *testing.T, b *quorumlock.Backend, _ []*node) {
		start := time.Now()
		_, err := b.Line(t.Context(), "key 1")
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "1 of 3 nodes acknowledged") || took > 3*time.Second {
			t.Errorf("after %v two nodes that hang are %v; want their names within 3s", took, err)
		}
		ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
		defer end()
		start = time.Now()
		lines, _, err := listed(t, ctx, b)
		if took := time.Since(start); lines != 0 || !errors.Is(err, ctx.Err()) || took != 30*time.Second {
			t.Errorf("after %v a list of which no majority shows anything has %d lines and error %v; want its context's after 30s",
				took, lines, err)
		}
	})
}
