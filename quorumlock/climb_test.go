package quorumlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
)

// Clients whose clocks are each a little further ahead than the one before take the
// lock in turn. Then two of three nodes are wiped and wait out their quarantine. The
// tokens that they have forgotten must be below what they grant now. A limit of last +
// skew, in place of now + skew, does not keep that: so it must be seen to fail.
func TestClientsCannotClimbOnOneAnothersBallots(t *testing.T) {
	for r, falls := range map[rule]bool{whole: false, climbing: true} {
		t.Run(fmt.Sprintf("Broken=%v", falls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := []*simNode{newSimNode(r, 0), newSimNode(r, 0), newSimNode(r, 0)}
				members := []driver.Backend{nodes[0], nodes[1], nodes[2]}
				take := func(ahead time.Duration) int64 {
					b := quorumlock.New(members, nil)
					defer b.Close()
					b.SetClock(func() time.Time { return time.Now().Add(ahead) })
					c := driver.Claim{
						Key: "k", ID: fmt.Sprintf("%032d", ahead), Capacity: driver.RW, Weight: driver.RW,
						TTL: 100 * time.Millisecond, NoWait: true, Span: 1,
					}
					k, err := b.Enter(context.Background(), c)
					if err != nil {
						t.Fatalf("a client whose clock is %v ahead: %v", ahead, err)
					}
					check(t, b.Leave(context.Background(), k, driver.Exit{}))
					b.Settle(context.Background())
					return k.Token
				}
				largest := int64(0)
				for ahead := time.Duration(0); ahead < 5*time.Second; ahead += simMembership.Skew * 9 / 10 {
					largest = max(largest, take(ahead))
				}
				for _, n := range nodes[:2] {
					n.wipe()
					n.Store.Enter(context.Background(), driver.Claim{ // the first ballot is when it notices
						Key: "other", ID: "x", Capacity: driver.RW, Weight: driver.RW, TTL: time.Second, Span: 1, Ballot: 1,
					})
				}
				pause(simMembership.MaxTTL)
				b := quorumlock.New([]driver.Backend{nodes[0], nodes[1], dead{nodes[2]}}, nil)
				defer b.Close()
				k, err := b.Enter(context.Background(), driver.Claim{
					Key: "k", ID: "late", Capacity: driver.RW, Weight: driver.RW, TTL: 100 * time.Millisecond, NoWait: true, Span: 1,
				})
				if err != nil {
					t.Fatal(err)
				}
				fell := k.Token <= largest
				if fell != falls {
					t.Errorf("token %d after %d: a smaller one %v; want %v", k.Token, largest, fell, falls)
				}
			})
		})
	}
}

// dead is a node that answers nothing but errors.
type dead struct{ *simNode }

func (dead) Enter(context.Context, driver.Claim) (driver.Ticket, error) {
	return driver.Ticket{}, context.DeadlineExceeded
}

func (dead) Leave(context.Context, driver.Ticket, driver.Exit) error { return context.DeadlineExceeded }
