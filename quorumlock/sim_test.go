package quorumlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/quorumlock"
)

// simulate plays one run: clients with clocks as wrong as can be take and lose one
// lock, over nodes that fail and are wiped, for a few seconds of virtual time.
func simulate(t *testing.T, seed uint64) result {
	var grants []grant
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 7))
		nodes := make([]*simNode, 3+2*rng.IntN(2))
		for i := range nodes {
			// The clocks of any two nodes are apart by less than the skew.
			nodes[i] = newSimNode(time.Duration(rng.Int64N(int64(simMembership.Skew))))
		}
		end := time.Now().Add(12 * time.Second)
		var mu sync.Mutex
		var group sync.WaitGroup
		for i, n := range nodes {
			rng := rand.New(rand.NewPCG(seed, 100+uint64(i)))
			group.Go(func() { trouble(rng, n, end) })
		}
		for i := range 3 + rng.IntN(3) {
			rng := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
			members := make([]driver.Backend, len(nodes))
			for j, n := range nodes {
				members[j] = &link{simNode: n, rng: rand.New(rand.NewPCG(seed, 10000+uint64(100*i+j)))}
			}
			b := quorumlock.New(members, nil)
			// Each client's clock is further ahead than the one before; some are far off.
			ahead := time.Duration(i)*400*time.Millisecond + time.Duration(rng.Int64N(int64(50*time.Millisecond)))
			if rng.IntN(3) == 0 {
				ahead = time.Duration(rng.Int64N(int64(20*time.Second))) - 10*time.Second
			}
			b.SetClock(func() time.Time { return time.Now().Add(ahead) })
			c := simClient{name: fmt.Sprint("client ", i), rng: rng, b: b, end: end}
			group.Go(func() {
				defer b.Close()
				for time.Now().Before(end) {
					if g, ok := c.turn(); ok {
						mu.Lock()
						grants = append(grants, g)
						mu.Unlock()
					}
					pause(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
				}
			})
		}
		group.Wait()
		pause(2 * time.Second) // for requests that are still under way
	})
	return judge(grants)
}

// pause makes no timer that is due at once: two of them in one bubble end the race detector
// (golang/go#78156).
func pause(d time.Duration) { time.Sleep(d) }

// trouble takes a node down and wipes it, now and then.
func trouble(rng *rand.Rand, n *simNode, end time.Time) {
	for {
		pause(time.Duration(rng.Int64N(int64(8 * time.Second))))
		if !time.Now().Before(end) {
			return
		}
		n.down.Store(true)
		pause(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		if rng.IntN(3) > 0 {
			n.Flush() // a restart without the data
		}
		n.down.Store(false)
	}
}

// simClient is one process.
type simClient struct {
	name string
	rng  *rand.Rand
	b    *quorumlock.Backend
	end  time.Time
	n    int
}

// turn tries to take the lock once, and holds it for a while. It reports what it
// believed, if it was granted an exclusive claim.
func (s *simClient) turn() (g grant, ok bool) {
	s.n++
	ttl := time.Duration(100+s.rng.IntN(300)) * time.Millisecond
	c := driver.Claim{
		Key: "k", ID: fmt.Sprintf("%08x%08x", s.rng.Uint32(), s.n), Owner: s.name,
		Capacity: driver.RW, Weight: driver.RW, TTL: ttl, NoWait: true, Span: 1 + s.rng.Int64N(3),
	}
	if s.rng.IntN(6) == 0 {
		c.Weight = 1
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), ttl*2/3)
	t, err := s.b.Enter(ctx, c)
	cancel()
	acquired := time.Now()
	until := began.Add(believed(t.Left))
	if err != nil || !acquired.Before(until) {
		s.leave(driver.Ticket{Claim: c})
		return g, false
	}
	until = s.hold(t, until)
	if time.Now().Before(until) && s.rng.IntN(4) > 0 {
		until = time.Now()
		s.leave(t)
	} // else it has crashed, or its lease is over
	return grant{s.name, began, acquired, until, t.Token, t.Span}, driverutil.Exclusive(&c)
}

// hold keeps the lock for a while, and renews it; it returns until when it believes.
func (s *simClient) hold(t driver.Ticket, until time.Time) time.Time {
	for range s.rng.IntN(6) {
		pause(min(t.TTL/3, time.Until(until)))
		sent := time.Now()
		if !sent.Before(until) {
			return until
		}
		ctx, cancel := context.WithTimeout(context.Background(), t.TTL/3)
		err := s.b.Renew(ctx, []driver.Ticket{t})[0]
		cancel()
		switch now := time.Now(); {
		case !now.Before(until):
			return until
		case driver.Gone(err):
			return now
		case err == nil:
			until = sent.Add(believed(t.TTL))
		}
	}
	pause(min(time.Duration(s.rng.Int64N(int64(t.TTL))), time.Until(until)))
	return until
}

func (s *simClient) leave(t driver.Ticket) {
	ctx, cancel := context.WithTimeout(context.Background(), t.TTL/2)
	defer cancel()
	s.b.Leave(ctx, t, driver.Exit{Tombstone: t.Token == 0})
}

// believed is how long the core believes in a lease.
func believed(d time.Duration) time.Duration { return d - d/100 - 2*time.Millisecond }

// seeds returns the seeds to play: the one that the environment names, or from one number up to another and one more.
func seeds(t *testing.T, from, to int) []uint64 {
	all := drivertest.Seeds(t, 1)
	if _, err := strconv.ParseUint(os.Getenv(drivertest.SeedVariable), 10, 64); err == nil {
		return all
	}
	for i := from; i < to; i++ {
		all = append(all, uint64(i))
	}
	return all
}

//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestSimulatedQuorumBreaksNoRule(t *testing.T) {
	t.Parallel()
	from, to := 0, 30 // with the race detector
	if text := os.Getenv(childVariable); text != "" {
		_, err := fmt.Sscanf(text, "%d-%d", &from, &to)
		steps.Must(t, err)
	}
	total := result{}
	all := seeds(t, from, to)
	for _, seed := range all {
		v := simulate(t, seed)
		total.grants += v.grants
		if v.bad() > 0 {
			t.Fatalf("%s\n%d duplicate tokens, %d out of order, %d overlaps; replay with %s=%d",
				v.example, v.duplicates, v.disorder, v.overlaps, drivertest.SeedVariable, seed)
		}
	}
	t.Logf("%d runs, %d grants", len(all), total.grants)
	if total.grants < 5*len(all) {
		t.Errorf("only %d grants in %d runs prove nothing", total.grants, len(all))
	}
}
