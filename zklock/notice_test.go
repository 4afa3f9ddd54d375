package zklock

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// hasNotice checks that err tells of a notice.
func hasNotice(t *testing.T, err error) {
	t.Helper()
	var gone driver.GoneError
	if !errors.As(err, &gone) || gone.Left <= 0 || !gone.Broken || gone.Reason != "please" {
		t.Errorf("got %+v; want a notice", err)
	}
}

// TestHolderThatNeverRenewsEndsWithItsNotice: its Backend hears of the notice, and ends the claim.
func TestHolderThatNeverRenewsEndsWithItsNotice(t *testing.T) {
	s, b, other := twoSessions(t)
	warned, k := steps.Hold(t, b, steps.Claim("warned")), steps.Hold(t, b, steps.Claim("k"))
	steps.Must(t, other.Break(t.Context(), "warned", warned.Token, driver.Break{Reason: "please", Notice: time.Hour}))
	a := admin(t, s)
	eventually(t, "it has heard", func() bool { return len(tree(t, a, prefix(t)+brokenDir)) == 0 })
	steps.Must(t, other.Break(t.Context(), "k", k.Token, driver.Break{Reason: "please", Notice: 300 * time.Millisecond}))
	eventually(t, "the claim has ended", func() bool { return len(nodes(t, a, "k")) == 0 })
	steps.Gone(t, "Renew", steps.Renew(t, b, k))
	steps.Leave(t, b, warned)
}

// TestHolderThatDidNotHearOfANoticeHearsAtItsRenewal: what tells it at once may be late, or lost.
func TestHolderThatDidNotHearOfANoticeHearsAtItsRenewal(t *testing.T) {
	_, b, other := twoSessions(t)
	session, err := b.session(t.Context())
	steps.Must(t, err)
	session.listens.Do(func() {})
	k := steps.Hold(t, b, steps.Claim("k"))
	steps.Must(t, steps.Renew(t, b, k))
	steps.Must(t, other.Break(t.Context(), "k", k.Token, driver.Break{Reason: "please", Notice: time.Minute}))
	hasNotice(t, steps.Renew(t, b, k))
	again, err := b.Enter(t.Context(), k.Claim)
	if err != nil || again.Token != k.Token || again.Left > time.Minute {
		t.Errorf("Enter once more returned %+v, %v; want the claim and what is left of its notice", again, err)
	}
	steps.Leave(t, b, k)
}

// TestHolderThatLeavesBeforeItHearsOfANoticeKnowsTheReason: a repeat of its requests returns the reason.
func TestHolderThatLeavesBeforeItHearsOfANoticeKnowsTheReason(t *testing.T) {
	_, b, other := twoSessions(t)
	session, err := b.session(t.Context())
	steps.Must(t, err)
	session.listens.Do(func() {})
	for _, exit := range []driver.Exit{{}, {Tombstone: true}, {Mark: "done"}} {
		k := steps.Hold(t, b, steps.Claim("k"))
		steps.Must(t, other.Break(t.Context(), "k", k.Token, driver.Break{Reason: "please", Notice: time.Minute}))
		steps.Must(t, b.Leave(t.Context(), k, exit))
		_, again := b.Enter(t.Context(), k.Claim)
		for what, err := range map[string]error{"Renew": steps.Renew(t, b, k), "Enter": again} {
			var gone driver.GoneError
			if !errors.As(err, &gone) || gone.Reason != "please" || gone.Left > 0 {
				t.Errorf("%s of a claim that left with %+v returned %+v; want the reason of its notice", what, exit, err)
			}
		}
	}
}

// TestNoticeToAWaiterThatHasJustBeenGranted: it holds when the Break arrives, so it has the notice.
func TestNoticeToAWaiterThatHasJustBeenGranted(t *testing.T) {
	_, b, other := twoSessions(t)
	held := steps.Hold(t, b, steps.Claim("k"))
	next := steps.Wait(t, b, steps.Claim("k"))
	session, err := other.session(t.Context())
	steps.Must(t, err)
	session.send = func(ops ...any) ([]zk.MultiResponse, error) {
		if slices.ContainsFunc(ops, func(op any) bool { _, ok := op.(*zk.DeleteRequest); return ok }) && held.Token != 0 {
			steps.Leave(t, b, held)
			held.Token = 0
		}
		return session.zk.Multi(ops...)
	}
	steps.Must(t, other.Break(t.Context(), "k", next.Token, driver.Break{Reason: "please", Notice: time.Minute}))
	next = steps.Granted(t, b, next)
	hasNotice(t, steps.Renew(t, b, next))
	steps.Leave(t, b, next)
}

// TestReasonStaysThoughThatOfTheNoticeIsClearedAwayLate: a holder that hears of a notice twice clears its record away
// twice, and the second time an operator has broken the claim.
func TestReasonStaysThoughThatOfTheNoticeIsClearedAwayLate(t *testing.T) {
	_, b, other := twoSessions(t)
	session, err := b.session(t.Context())
	steps.Must(t, err)
	session.listens.Do(func() {})
	clears, cleared := make(chan struct{}), make(chan struct{}, 8)
	session.send = func(ops ...any) ([]zk.MultiResponse, error) {
		if !slices.ContainsFunc(ops, func(op any) bool {
			d, ok := op.(*zk.DeleteRequest)
			return ok && strings.Contains(d.Path, brokenDir)
		}) {
			return session.zk.Multi(ops...)
		}
		<-clears
		defer func() { cleared <- struct{}{} }()
		return session.zk.Multi(ops...)
	}
	k := steps.Hold(t, b, steps.Claim("k"))
	steps.Must(t, other.Break(t.Context(), "k", k.Token, driver.Break{Reason: "please", Notice: time.Minute}))
	hasNotice(t, steps.Renew(t, b, k))
	c := b.claims.find(driverutil.Ref(k.Key, k.ID))
	steps.Must(t, b.hear(session, c, c.state().at))
	clears <- struct{}{}
	<-cleared
	steps.Must(t, other.Break(t.Context(), "k", k.Token, driver.Break{Reason: "now"}))
	clears <- struct{}{}
	<-cleared
	close(clears)
	var gone driver.GoneError
	if err := steps.Renew(t, b, k); !errors.As(err, &gone) || gone.Reason != "now" {
		t.Errorf("Renew returned %v; want the reason of the second Break", err)
	}
}

// A firewall swallows what is sent, and many calls come and are given up.
func TestServerThatSwallowsRequestsHoldsFewGoroutines(t *testing.T) {
	s := server(t)
	p := newProxy(t, s)
	b := connect(t, long, s)
	b.servers = []string{p.Addr()}
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	before := runtime.NumGoroutine()
	p.Discard(faultproxy.ToServer, faultproxy.ToClient)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 50 {
				_, _ = b.Enter(within(t, 20*time.Millisecond), steps.Claim(fmt.Sprint("k", i, "-", n)))
			}
		})
	}
	all.Wait()
	if n := runtime.NumGoroutine() - before; n > 3*maxStrays {
		t.Errorf("2000 calls that were given up have left %d goroutines", n)
	}
	p.Resume()
	p.Cut()
	eventually(t, "the server is asked again", func() bool {
		k, err := b.Enter(within(t, 10*time.Second), steps.NoWait(steps.Claim("k")))
		if err == nil {
			steps.Leave(t, b, k)
		}
		return err == nil
	})
	eventually(t, "no call goes on", func() bool { return runtime.NumGoroutine()-before < 50 })
}
