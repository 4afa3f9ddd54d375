package zklock

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

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
