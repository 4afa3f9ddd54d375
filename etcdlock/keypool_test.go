package etcdlock

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
)

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
