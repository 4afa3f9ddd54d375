package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// long is a session that does not end during a test.
var long = &Options{SessionTimeout: 9 * time.Minute}

// quiet opens a Backend behind a proxy and waits until all that its session begins
// with is over.
func quiet(t testing.TB, p *faultproxy.Proxy) *Backend {
	t.Helper()
	b := through(t, p, long)
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("warm up "+p.Addr())))
	last := -1
	eventually(t, "nothing more is asked", func() bool {
		n := len(requests(p))
		<-after(30 * time.Millisecond)
		still := n == last
		last = n
		return still
	})
	p.Forget()
	return b
}

func sent(t *testing.T, p *faultproxy.Proxy, what string, want ...int32) {
	t.Helper()
	if got := requests(p); !slices.Equal(got, want) {
		t.Errorf("%s cost the requests %v; want %v", what, got, want)
	}
	p.Forget()
}

//verify:fault ZooKeeper | requests of a free lock and of its release
func TestFreeLockCostsTwoRequestsAndItsReleaseOne(t *testing.T) {
	s, p, b := quietly(t)
	for _, c := range []driver.Claim{steps.Claim("orders/42"), steps.NoWait(steps.Claim("orders/43")), steps.Reader("orders/44")} {
		k := steps.Hold(t, b, c)
		sent(t, p, "Enter of a free lock", opCreateContainer, opMulti)
		steps.Must(t, renew(b, k))
		sent(t, p, "Renew", opMulti)
		if c.Weight == 1 && k.Mark != "" {
			t.Error("there is no mark")
		}
		steps.Leave(t, b, k)
		sent(t, p, "Leave of a lock that nobody waits for", opMulti)
	}
	empty(t, s)
}

func TestManyLocksAreRenewedByOneRequest(t *testing.T) {
	s, p, b := quietly(t)
	ks := make([]driver.Ticket, 300)
	for i := range ks {
		ks[i] = steps.Hold(t, b, steps.Claim(fmt.Sprint("k", i)))
	}
	p.Forget()
	for i, err := range b.Renew(t.Context(), ks) {
		if err != nil {
			t.Fatalf("Renew of claim %d: %v", i, err)
		}
	}
	sent(t, p, "Renew of 300 locks", opMulti)
	for _, k := range ks {
		steps.Leave(t, b, k)
	}
	empty(t, s)
}

func TestRefusedClaimWritesNothing(t *testing.T) {
	s, p, b := quietly(t)
	holder := connect(t, long, s)
	steps.Hold(t, holder, steps.Claim("k"))
	c := admin(t, s)
	_, before, err := c.Get(prefix(t) + linesDir + "/k")
	steps.Must(t, err)
	p.Forget()
	if _, err := b.Enter(t.Context(), steps.NoWait(steps.Claim("k"))); err == nil {
		t.Fatal("a claim was granted beside the holder")
	}
	sent(t, p, "a refusal", opCreateContainer, opChildren, opGetData)
	_, now, err := c.Get(prefix(t) + linesDir + "/k")
	if err != nil || *now != *before {
		t.Errorf("the refusal changed the line from %+v to %+v, error %v", before, now, err)
	}
}

// A claim in a long line costs seven requests: to join, to read who is ahead and who is first,
// to watch the next of them and itself, to read the line when that has left, and to leave.
// Waiting costs none.
func TestGrantInALongLineCostsSevenRequests(t *testing.T) {
	s, p, b := quietly(t)
	other := connect(t, long, s)
	var ahead []driver.Ticket
	for range 5 {
		ahead = append(ahead, steps.Enter(t, other, steps.Claim("k")))
	}
	steps.Leave(t, b, steps.Wait(t, b, steps.Claim("k"))) // its container is known from now on
	p.Forget()
	k := steps.Wait(t, b, steps.Claim("k"))
	sent(t, p, "Enter behind many", opMulti, opChildren, opGetData)
	if k.Head == nil || k.Head.Token != ahead[0].Token || k.Head.Ahead != len(ahead) {
		t.Errorf("the first is shown as %+v; want token %d, %d ahead", k.Head, ahead[0].Token, len(ahead))
	}
	steps.Must(t, steps.ErrOf(b.Await(t.Context(), k)))
	sent(t, p, "the first Await", opGetData, opGetData) // watches on the one before it, and on itself
	steps.Must(t, steps.ErrOf(b.Await(t.Context(), k)))
	sent(t, p, "a second of Await")
	next := make(chan driver.Ticket, 1)
	go func() {
		now, err := k, error(nil)
		for err == nil && !now.Granted {
			now, err = b.Await(context.WithoutCancel(t.Context()), now)
		}
		next <- now
	}()
	for _, a := range ahead {
		steps.Leave(t, other, steps.Granted(t, other, a))
	}
	steps.Leave(t, b, <-next)
	sent(t, p, "the grant and the release", opChildren, opMulti)
	empty(t, s)
}

// An operator ends a claim that waits, and then the one before it leaves: that is no grant.
// The one behind has the lock by then.
func TestBrokenWaiterIsNotGranted(t *testing.T) {
	s, b, other := twoSessions(t)
	first := steps.Hold(t, other, steps.Claim("k"))
	second, third := steps.Wait(t, b, steps.Claim("k")), steps.Wait(t, other, steps.Claim("k"))
	steps.Must(t, other.Break(t.Context(), "k", second.Token, driver.Break{Reason: "go home"}))
	steps.Leave(t, other, first)
	_, err := b.Await(t.Context(), second)
	var g driver.GoneError
	if !errors.As(err, &g) || g.Reason != "go home" {
		t.Errorf("Await of a claim that was broken answered %v; want the reason", err)
	}
	steps.Leave(t, other, steps.Granted(t, other, third))
	empty(t, s)
}

// A server allows few connections from one host, and all are in use. The holder's breaks, and
// before it is back process after process begins that wants a lock. None takes its place.
func TestProcessThatBeginsTakesNoPlaceOfAHolder(t *testing.T) {
	t.Parallel()
	const allowed = 4
	s := testserver.ZooKeeper(t, testserver.Config(fmt.Sprint("maxClientCnxns=", allowed)),
		testserver.Config("nio.sessionlessCnxnTimeout=600000")) // of the other program, which never speaks
	p := faultproxy.Start(t, s.Addr(), faultproxy.ZooKeeper)
	holder := process(t, p.Addr())
	held := steps.Hold(t, holder, steps.Claim("k"))
	for range allowed - 2 {
		steps.Wait(t, process(t, s.Addr()), steps.Claim("k"))
	}
	other, err := net.Dial("tcp", s.Addr()) // of another program, which takes any place
	steps.Must(t, err)
	t.Cleanup(func() { other.Close() })
	eventually(t, "the server is full", func() bool { return !speaks(t, s) })

	p.Refuse()
	eventually(t, "the holder's place is free", func() bool { return speaks(t, s) })
	for range allowed {
		if _, err := process(t, s.Addr()).Enter(within(t, 10*time.Second), steps.NoWait(steps.Claim("other"))); !turnedAway(err) {
			t.Fatalf("a process that begins: %v; want an error that names maxClientCnxns", err)
		}
	}
	p.Resume()
	eventually(t, "the holder is back", func() bool {
		err := renew(holder, held)
		if driver.Gone(err) {
			t.Fatalf("the holder lost its lock: %v", err)
		}
		return err == nil
	})
	steps.Leave(t, holder, held)
}

// speaks reports whether the server has room for the connection that asks.
func speaks(t *testing.T, s *testserver.Server) bool {
	text, _ := s.FourLetters(t.Context(), "cons")
	return text != ""
}

// A limit of twice the processes turns no process away, even if all begin at once. A limit of one
// more than the processes is enough for all of them to come back after all connections broke.
func TestLimitThatIsEnoughForAllProcesses(t *testing.T) {
	t.Parallel()
	const n = 5
	for name, allowed := range map[string]int{"twice": 2 * n, "one more": n + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.ZooKeeper(t, testserver.Config(fmt.Sprint("maxClientCnxns=", allowed)))
			p := faultproxy.Start(t, s.Addr(), faultproxy.ZooKeeper)
			all := make([]*Backend, n)
			held := make([]driver.Ticket, n)
			var begun sync.WaitGroup
			for i := range all {
				all[i] = process(t, p.Addr())
				begin := func() {
					eventually(t, "a process begins", func() bool {
						k, err := all[i].Enter(within(t, 10*time.Second), steps.Claim(fmt.Sprint(i)))
						if err != nil && allowed == 2*n {
							t.Errorf("a process that begins: %v", err)
						}
						held[i] = k
						return err == nil
					})
				}
				if allowed == 2*n {
					begun.Go(begin)
				} else {
					begin()
				}
			}
			begun.Wait()
			p.Cut()
			for i, b := range all {
				eventually(t, "a holder is back", func() bool {
					err := renew(b, held[i])
					if driver.Gone(err) {
						t.Fatalf("a holder lost its lock: %v", err)
					}
					return err == nil
				})
			}
		})
	}
}

func turnedAway(err error) bool { return err != nil && strings.Contains(err.Error(), "maxClientCnxns") }

// process opens a backend as a process of its own does: it knows nothing of the others.
func process(t *testing.T, addr string) *Backend {
	b := New([]string{addr}, &Options{SessionTimeout: 60 * time.Second})
	b.crowd = &crowd{}
	t.Cleanup(func() { b.Close() })
	return b
}
