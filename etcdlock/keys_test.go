package etcdlock

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
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

func poolClaim(id string) *driver.Claim {
	return &driver.Claim{Key: "k", ID: id, Capacity: driver.RW, Weight: driver.RW}
}

// The next claim gets the name of the one before as soon as no Enter of that one is sent
// any more. Nothing is kept of a claim that was released.
func TestNameIsUsedAgainOnceItsClaimHasLeft(t *testing.T) {
	first, next := poolClaim("1"), poolClaim("2")
	for what, test := range map[string]struct {
		after       func(p *keyPool)
		keeps, free bool // the first claim keeps its name; the name is free for the next
	}{
		"it is in line":              {func(p *keyPool) {}, true, false},
		"it has left":                {func(p *keyPool) { p.release(driverutil.Ref(first.Key, first.ID)) }, false, true},
		"it was refused":             {func(p *keyPool) { p.refused(driverutil.Ref(first.Key, first.ID)) }, false, true},
		"another claim has its name": {func(p *keyPool) { p.collided("k/", first) }, false, true},
		"its Enter may still arrive": {func(p *keyPool) { p.enterPending(driverutil.Ref(first.Key, first.ID)) }, true, false},
		"a second Enter was refused": {func(p *keyPool) {
			p.enterPending(driverutil.Ref(first.Key, first.ID))
			p.refused(driverutil.Ref(first.Key, first.ID))
		}, true, false},
		"a second Enter has collided": {func(p *keyPool) { p.enterPending(driverutil.Ref(first.Key, first.ID)); p.collided("k/", first) }, true, false},
		"it has left after all": {func(p *keyPool) {
			p.enterPending(driverutil.Ref(first.Key, first.ID))
			p.release(driverutil.Ref(first.Key, first.ID))
		}, false, true},
	} {
		var p keyPool
		name := p.take("k/", first)
		test.after(&p)
		if keeps := p.name(driverutil.Ref(first.Key, first.ID)) == name; keeps != test.keeps {
			t.Errorf("%s: the claim keeps its name: %v", what, keeps)
		}
		steps.Same(t, what+": the next claim has its name", p.take("k/", next) == name, test.free)
		p.release(driverutil.Ref(first.Key, first.ID))
		p.release(driverutil.Ref(next.Key, next.ID))
		if len(p.names)+len(p.inUse)+len(p.pending) > 0 {
			t.Errorf("%s: after both have left the pool keeps %v, %v, %v", what, p.names, p.inUse, p.pending)
		}
	}
}
