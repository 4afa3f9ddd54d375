package fencelock

import (
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// loseLocked ends a claim that did not leave by itself. Its holder learns of the loss before
// this process can grant the key to anybody else. The caller ends with claim.unlock.
func (cl *claim) loseLocked(kind error, detail string) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	now := cl.c.clock.Now()
	lost := cl.loss(kind, cl.holderTokenLocked(), detail)
	cl.state = stateEnded
	cl.writeRare().lost = lost
	if interrupt := cl.rare.interrupt; interrupt != nil {
		interrupt()
	}
	g := cl.grant
	switch {
	case g == nil:
		// The call that waits for this claim enters again or gives up. Either way it sends
		// the Leave.
		cl.planLocked(now)
		return
	case kind == ErrBroken || cl.named:
		cl.endGrantLocked(g, lost)
		cl.planLocked(now)
	default:
		// The lease runs out in the store by itself. Until then the claim stays in line,
		// because its holder may not have noticed. The Leave is needed where claims share one
		// lease, which the other claims keep alive.
		cl.endGrantLocked(g, lost)
		cl.leaveLaterLocked(max(cl.leaseEnd, now), driver.Exit{})
	}
	cl.wakeQueue = cl.queue != nil
}

// loss describes the loss of a grant.
func (cl *claim) loss(kind error, token fence.Token, detail string) error {
	return &lossError{kind: kind, key: cl.key, token: token, detail: detail}
}

// lapseLocked ends the claim if its deadline or its MaxHold has passed, and reports whether
// it has.
func (cl *claim) lapseLocked(now int64) bool {
	deadline, endAt := cl.deadline.Load(), cl.endAtLocked()
	switch {
	case now < min(deadline, endAt):
		return false
	case endAt <= deadline:
		cl.loseLocked(ErrMaxHold, "")
	case cl.stalledLocked(deadline):
		cl.loseLocked(ErrStalled, cl.grant.progress.detail())
	default:
		cl.loseLocked(ErrExpired, "")
	}
	return true
}

// goneLocked ends a claim that the store no longer has.
func (cl *claim) goneLocked(reason string, operator bool) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	if reason == "" && operator {
		reason = "an operator broke it"
	} else if reason == "" {
		reason = "it was no longer in the store"
	}
	cl.broken = operator
	cl.leaseEnd = 0 // nothing is left in the store
	cl.loseLocked(ErrBroken, reason)
}

// riskLocked reports once that the lease may end before it is renewed.
func (cl *claim) riskLocked(now int64, err error) {
	if cl.atRisk {
		return
	}
	cl.atRisk = true
	if cl.grant != nil {
		cl.grant.sendAtRisk(now, err)
	}
}

// claimBroken is called by a backend that hears of a claim's end.
func (c *Client) claimBroken(id string, gone driver.GoneError) {
	for _, cl := range c.schedule.Find(func(cl *claim) bool { return cl.id == id }) {
		cl.mu.Lock()
		cl.goneLocked(gone.Reason, gone.Broken)
		cl.unlock()
	}
}
