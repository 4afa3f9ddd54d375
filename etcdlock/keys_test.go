package etcdlock

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// A machine that slept has a wall clock that went on and a monotonic one that did not;
// a wall clock that was set back says nothing.
func TestAgeIsTheLongerOfBothClocks(t *testing.T) {
	now := time.Now()
	steps.Same(t, "a second", age(now, now.Add(time.Second)), time.Second)
	slept := now.Add(time.Minute).Round(0) // no monotonic reading: only the wall is compared
	if d := age(now, slept); d < time.Minute-time.Millisecond {
		t.Errorf("a minute of sleep is %v", d)
	}
	steps.Same(t, "an hour back", age(now.Round(0), now.Add(-time.Hour).Round(0)), -time.Hour)
}

func TestLeasesAreWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 2, time.Second: 2, 2 * time.Second: 2, 2*time.Second + 1: 3, maxTTL: 366 * 24 * 3600} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%v takes a lease of %d seconds; want %d", d, got, want)
		}
	}
}

func TestSpansOfNeighboursDoNotMeet(t *testing.T) {
	if tokenOf(7)+65535-1 >= tokenOf(8) || revisionOf(tokenOf(7)+65534) != 7 {
		t.Error("the span of a revision reaches into the next")
	}
}

// The server ends leases late: a claim may be in line after its client has given it up.
func TestOverdueClaimIsNotGranted(t *testing.T) {
	b := New(nil, nil)
	l := &lease{id: 7, ttl: time.Minute, sent: time.Now()}
	b.leases.byLength = map[int64]*lease{60: l}
	p := &position{own: &keyValue{Lease: 7}}
	steps.Well(t, "a young lease", b.checkLease(p))
	l.sent = time.Now().Add(-time.Minute)
	if err := b.checkLease(p); err != errOverdue {
		t.Errorf("a lease that is over by our count: %v; want %v", err, errOverdue)
	}
	p.own.Lease = 8
	steps.Well(t, "a lease of which nothing is known here", b.checkLease(p))
}

// Nothing is kept of a claim that has left, whatever became of its Enters.
func TestClaimThatHasLeftIsForgotten(t *testing.T) {
	var p keyPool
	c := steps.Claim("k")
	ref := driverutil.Ref(c.Key, c.ID)
	p.take("k/", &c)
	p.drew(ref, &position{token: 7, rev: 7})
	p.collided("k/", &c)
	p.enterPending(ref)
	p.detach(ref)
	p.release(ref)
	if n := len(p.names) + len(p.inUse) + len(p.pending) + len(p.revs) + len(p.detaching); n > 0 {
		t.Errorf("the pool keeps %+v", &p)
	}
}
