package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

// quiet opens a Backend behind a proxy and waits until all that its session begins with is over: last it
// watches what operators write.
func quiet(t testing.TB, p *faultproxy.Proxy) *Backend {
	t.Helper()
	b := through(t, p, long)
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("warm up "+p.Addr())))
	eventually(t, "the session has begun", func() bool {
		return slices.ContainsFunc(p.Requests(), func(r faultproxy.Request) bool {
			return op(&r) == opChildren && bytes.Contains(r.Data, []byte(brokenDir))
		})
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
// Waiting costs none, but for a read of the line and of who is first each ten seconds.
func TestGrantInALongLineCostsSevenRequests(t *testing.T) {
	s, p, b := quietly(t)
	other := connect(t, long, s)
	var ahead []driver.Ticket
	for range 5 {
		ahead = append(ahead, steps.Enter(t, other, steps.Claim("k")))
	}
	steps.Leave(t, b, steps.Wait(t, b, steps.Claim("k"))) // its container is known from now on
	p.Forget()
	entered := time.Now()
	k := steps.Wait(t, b, steps.Claim("k"))
	sent(t, p, "Enter behind many", opMulti, opChildren, opGetData)
	if k.Head == nil || k.Head.Token != ahead[0].Token || k.Head.Ahead != len(ahead) {
		t.Errorf("the first is shown as %+v; want token %d, %d ahead", k.Head, ahead[0].Token, len(ahead))
	}
	steps.Must(t, steps.ErrOf(b.Await(t.Context(), k)))
	next, ctx := make(chan driver.Ticket, 1), steps.Soon(t)
	go func() {
		now, err := k, error(nil)
		for err == nil && !now.Granted {
			now, err = b.Await(ctx, now)
		}
		next <- now
	}()
	for _, a := range ahead {
		steps.Leave(t, other, steps.Granted(t, other, a))
	}
	steps.Leave(t, b, <-next)
	counts := map[int32]int{}
	for _, op := range requests(p) {
		counts[op]++
	}
	unread := int(time.Since(entered) / maxUnread)
	if counts[opMulti] != 1 || counts[opChildren] > 1+unread || counts[opGetData] > 2+unread || len(counts) != 3 {
		t.Errorf("the wait, the grant and the release cost %v", counts)
	}
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
		_, err := process(t, s.Addr()).Enter(steps.Soon(t), steps.NoWait(steps.Claim("other")))
		if err == nil || !strings.Contains(err.Error(), "maxClientCnxns") {
			t.Fatalf("a process that begins: %v; want an error that names maxClientCnxns", err)
		}
	}
	p.Resume()
	renews(t, holder, held)
	steps.Leave(t, holder, held)
}

// speaks reports whether the server has room for the connection that asks.
func speaks(t *testing.T, s *testserver.Server) bool {
	for {
		text, err := s.FourLetters(t.Context(), "cons")
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			return text != ""
		}
	}
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
						k, err := all[i].Enter(steps.Soon(t), steps.Claim(fmt.Sprint(i)))
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
				renews(t, b, held[i])
			}
		})
	}
}

// process opens a backend as a process of its own does: it knows nothing of the others.
func process(t *testing.T, addr string) *Backend {
	b := New([]string{addr}, long)
	b.crowd = &crowd{}
	t.Cleanup(func() { b.Close() })
	return b
}
