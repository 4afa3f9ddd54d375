package etcdlock

import (
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

func poolClaim(id string) *driver.Claim {
	return &driver.Claim{Key: "k", ID: id, Capacity: driver.RW, Weight: driver.RW}
}

// Names of claims that no call uses are kept for a while, but at most maxIdle of them.
// Names in use stay.
func TestIdleNamesAreBounded(t *testing.T) {
	var p keyPool
	asked := poolClaim("asked")
	name := p.take("k/", asked)
	p.enterPending(asked.Ref(), time.Hour)
	if again := p.take("k/", asked); again != name {
		t.Errorf("an Enter that is repeated has the name %q, and had %q", again, name)
	}
	for n := range maxIdle + 10 {
		c := poolClaim(strconv.Itoa(n))
		p.take(line(c.ID+"/"), c) // a line each: a free name is found at once
		p.maybeInLine(c.Ref(), time.Hour)
	}
	if len(p.inUse) > maxIdle+1 || len(p.names) != len(p.inUse) {
		t.Errorf("%d names of %d claims are kept; want %d at most", len(p.inUse), len(p.names), maxIdle+1)
	}
	if p.idle != len(p.inUse)-1 {
		t.Errorf("%d names are counted as idle, of %d; one is not", p.idle, len(p.inUse))
	}
	if p.name(asked.Ref()) != name {
		t.Errorf("a claim in use is called %q; it was %q", p.name(asked.Ref()), name)
	}
	p.notInLine(asked.Ref(), time.Hour)
	if p.name(asked.Ref()) != name {
		t.Error("a claim that may still arrive has lost its name")
	}
	p.left(asked.Ref())
	if p.name(asked.Ref()) != "" {
		t.Error("a claim that has left keeps its name")
	}
}

// The next claim gets the name of the one before as soon as that cannot be in line.
func TestNameIsUsedAgainOnceItsClaimHasLeft(t *testing.T) {
	first, next := poolClaim("1"), poolClaim("2")
	for what, test := range map[string]struct {
		after func(p *keyPool)
		again bool
	}{
		"it has left":                    {func(p *keyPool) { p.left(first.Ref()) }, true},
		"it is not in line":              {func(p *keyPool) { p.notInLine(first.Ref(), time.Hour) }, true},
		"it may be in line":              {func(p *keyPool) { p.maybeInLine(first.Ref(), time.Hour) }, false},
		"it may have been in line, once": {func(p *keyPool) { p.maybeInLine(first.Ref(), -time.Second) }, true},
		"another claim has its name":     {func(p *keyPool) { p.collided(first.Ref()) }, false},
		"its Enter may still arrive": {func(p *keyPool) {
			p.enterPending(first.Ref(), time.Hour)
			p.notInLine(first.Ref(), time.Hour)
		}, false},
	} {
		var p keyPool
		name := p.take("k/", first)
		test.after(&p)
		if again := p.take("k/", next) == name; again != test.again || len(p.names) != len(p.inUse) {
			t.Errorf("%s: the next claim has its name: %v", what, again)
		}
	}
}
