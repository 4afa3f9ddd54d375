package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// A waiter costs its Enter alone: the message that grants it brings the mark along.
func TestWaiterCostsOneRequestAndItsGrantNone(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	waiter, holder := onlyPushed(patient(t, p.Addr(), nil)), connect(t, s, nil)
	waiter.subscriber.silence = time.Hour
	warm := hold(t, holder, mutex("warm up"))
	k := wait_(t, waiter, mutex("warm up"))
	subscribed(t, waiter)
	leave(t, holder, warm)
	granted(t, waiter, k)
	leave(t, waiter, k)

	held := hold(t, holder, mutex("key"))
	p.Forget()
	k = wait_(t, waiter, mutex("key"))
	const mark = "a:1 \x00mark"
	got := make(chan driver.Ticket)
	go func() {
		now, err := waiter.Await(context.Background(), k)
		ok(t, err)
		got <- now
	}()
	parked(t, waiter, k)
	must(t, holder.Leave(t.Context(), held, driver.Exit{Mark: mark}))
	if now := <-got; !now.Granted || now.Mark != mark {
		t.Errorf("Await answered %+v; want the mark %q", now, mark)
	}
	if all, _ := p.names(); len(all) != 1 {
		t.Errorf("the waiter sent %q, want its Enter alone", all)
	}
}

// Requests on connections that are dead hold up nobody else.
func TestStuckRequestsDoNotHoldUpOthers(t *testing.T) {
	s := newServer(t)
	p, b := through(t, s)
	leave(t, b, hold(t, b, mutex("warm up")))
	var mu sync.Mutex
	swallowed := map[string]int{}
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		action := faultproxy.Pass
		for _, key := range []string{"{stuck%200}", "{stuck%201}"} { // one call may have both
			if strings.Contains(string(r.Data), key) {
				mu.Lock()
				swallowed[key]++
				mu.Unlock()
				action = faultproxy.DiscardAnswer
			}
		}
		if action != faultproxy.Pass && strings.Contains(string(r.Data), "{key%20") {
			t.Error("a request that hung is sent again with those of others")
		}
		return action
	})
	stuck := func(times int) bool {
		mu.Lock()
		defer mu.Unlock()
		return swallowed["{stuck%200}"] >= times && swallowed["{stuck%201}"] >= times
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() { b.Enter(ctx, mutex(fmt.Sprintf("stuck %d", i))) })
	}
	eventually(t, "both requests are stuck", func() bool { return stuck(1) })
	// Meanwhile both requests time out, and are sent again. So many others are under way that they gather.
	var others sync.WaitGroup
	for i := range 4 * maxDirect {
		others.Go(func() {
			for again := false; !again; again = stuck(2) {
				leave(t, b, hold(t, b, mutex(fmt.Sprint("key ", i))))
			}
		})
	}
	others.Wait()
	cancel()
	group.Wait()
}

// A Leave whose answer is late is sent again. By then others have held the lock: it was done all the same. But a claim
// that was broken before has not left.
func TestLeaveThatIsSentAgainLateWasDone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p, b := through(t, s)
	other := connect(t, s, nil)
	for name, tt := range map[string]struct {
		linger time.Duration
		broken *driver.Break // before it leaves
	}{
		"free at once":   {},
		"a short linger": {linger: minTTL},
		"under notice":   {broken: &driver.Break{Reason: "soon", Notice: time.Minute}},
		"broken":         {broken: &driver.Break{Reason: "now"}},
	} {
		leave(t, b, hold(t, b, mutex("key"))) // the server is near
		k := hold(t, b, mutex("key"))
		if tt.broken != nil {
			must(t, other.Break(t.Context(), "key", k.Token, *tt.broken))
		}
		sent := 0
		p.onScript(leaveScript, func(nth int) faultproxy.Action {
			if sent = nth; sent > 1 {
				eventually(t, "the lock is free", func() bool { return len(line(t, other, "key").Claims) == 0 })
				leave(t, other, hold(t, other, mutex("key")))
				return faultproxy.Pass
			}
			return faultproxy.HoldAnswer
		})
		err := b.Leave(t.Context(), k, driver.Exit{Linger: tt.linger})
		p.Handle(nil)
		p.Resume()
		if sent < 2 {
			t.Errorf("%s: it was sent %d times: the schedule of this test no longer holds", name, sent)
		}
		if broken := tt.broken != nil && tt.broken.Notice == 0; driver.Gone(err) != broken || err != nil && !broken {
			t.Errorf("%s: it answered %v", name, err)
		}
		wantGone(t, "a second Leave", b.Leave(t.Context(), k, driver.Exit{}))
	}
}

// A Break that is sent again finds no claim: because the first copy ended it, or because there was none.
func TestBreakOfNothingThatIsSentAgainIsGone(t *testing.T) {
	t.Parallel()
	p, b := through(t, newServer(t))
	again := func(token int64, reason string) error {
		p.onScript(breakScript, func(nth int) faultproxy.Action {
			if nth == 1 {
				return faultproxy.DropAnswer
			}
			return faultproxy.Pass
		})
		return b.Break(t.Context(), "key", token, driver.Break{Reason: reason})
	}
	wantGone(t, "a Break of a lock that was never held", again(1, "enough"))
	k := hold(t, b, mutex("key"))
	ok(t, again(k.Token, "enough"))
	wantGone(t, "a Break of what another has broken", again(k.Token, "it hangs"))
	wantGone(t, "the same Break by a new call", b.Break(t.Context(), "key", k.Token, driver.Break{Reason: "enough"}))
	wantGone(t, "a Break of an earlier claim", again(k.Token-1, "enough"))
}

// An Enter that is late, or whose connection is reset, is sent again. What was sent first may
// still arrive when the lock has been given back: it must not get the lock then, for nobody
// would release it.
func TestEnterThatArrivesAfterItsRepeatAndLeave(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ reset, refused bool }{
		"granted":        {},
		"refused":        {refused: true},
		"granted, reset": {reset: true},
		"refused, reset": {reset: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			other := connect(t, s, nil)
			p, b := through(t, s)
			leave(t, b, enter(t, b, mutex("key"))) // the server knows the scripts, and is near
			c := mutex("key")
			var held driver.Ticket
			if tt.refused {
				held = hold(t, other, mutex("key"))
				c.NoWait = true
			}
			sent := 0
			p.onScript(enterScript, func(nth int) faultproxy.Action {
				switch sent = nth; {
				case sent > 1:
					return faultproxy.Pass
				case tt.reset:
					return faultproxy.LateRequest
				}
				return faultproxy.HoldRequest
			})
			k, err := b.Enter(t.Context(), c)
			if busy := (*driver.BusyError)(nil); errors.As(err, &busy) != tt.refused || err == nil == tt.refused {
				t.Fatalf("Enter answered %+v and error %v", k, err)
			}
			if tt.refused {
				leave(t, other, held)
			} else {
				leave(t, b, k)
			}
			p.Handle(nil)
			if sent < 2 {
				t.Errorf("Enter was sent %d times: the schedule of this test no longer holds", sent)
			}
			before := calls(t, s, "evalsha", "eval")
			p.Resume()
			eventually(t, "what was late arrives", func() bool { return calls(t, s, "evalsha", "eval") > before })
			inLine(t, "no client wants the lock any more", other, "key", 0)
		})
	}
}

// Calls that come while requests are under way go out together. Many renewals go in few requests.
func TestManyRenewalsGoInFewRequests(t *testing.T) {
	p, b := through(t, newServer(t))
	const n = 450
	tickets := make([]driver.Ticket, n)
	var group sync.WaitGroup
	for i := range tickets {
		group.Go(func() { tickets[i] = hold(t, b, mutex(fmt.Sprintf("key %d", i))) })
	}
	group.Wait()
	if scripts, _ := p.names(); len(scripts) > n/2 {
		t.Errorf("%d locks that came together took %d calls", n, len(scripts))
	}
	must(t, renew(t, b, tickets[0])) // the script
	p.Forget()
	must(t, errors.Join(b.Renew(t.Context(), tickets)...))
	// Batches of 256, in calls of 64, are 8. How many requests there are when a batch goes out is up to the scheduler.
	if scripts, _ := p.names(); len(scripts) > 2*(4+4) {
		t.Errorf("%d renewals took %d scripts, want about 8", n, len(scripts))
	}
}
