package fencelock

import (
	"cmp"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// loseLocked ends a claim that did not leave by itself. Its holder learns of the loss before
// this process can grant the key to anybody else.
func (cl *claim) loseLocked(lost *lossError) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	now := cl.c.clock.Now()
	cl.state = stateEnded
	cl.writeRare().lost = lost
	if interrupt := cl.rare.interrupt; interrupt != nil {
		interrupt()
	}
	l := cl.holder
	switch {
	case l == nil:
		// The call that waits for this claim enters again or gives up. Either way it sends
		// the Leave.
		cl.planLocked(now)
		return
	case cl.leaseEnd == 0 || cl.named:
		cl.endGrantLocked(l, lost)
		cl.planLocked(now)
	default:
		// The lease runs out in the store by itself. Until then the claim stays in line,
		// because its holder may not have noticed. The Leave is needed where claims share one
		// lease, which the other claims keep alive.
		cl.endGrantLocked(l, lost)
		cl.leaveLaterLocked(max(cl.leaseEnd, now), driver.Exit{})
	}
	if cl.queue != nil {
		go cl.queue.claimLost(cl) // its mutex comes first
	}
}

func (cl *claim) lossLocked(kind error, detail string) *lossError {
	if cl.holder != nil {
		return cl.loss(kind, cl.holder.token, detail)
	}
	return cl.loss(kind, fence.Token(cl.token), detail)
}

func (cl *claim) loss(kind error, token fence.Token, detail string) *lossError {
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
		cl.loseLocked(cl.lossLocked(ErrMaxHold, ""))
	case cl.noticeEndLocked() <= deadline:
		cl.loseLocked(cl.brokenLocked(cl.rare.notice.reason, lossByOperator))
	case cl.stalledLocked(deadline):
		cl.loseLocked(cl.lossLocked(ErrStalled, cl.progressLocked().String()))
	default:
		cl.loseLocked(cl.lossLocked(ErrExpired, ""))
	}
	return true
}

// goneLocked ends a claim that the store no longer has.
func (cl *claim) goneLocked(reason string, by lossBy) {
	if cl.state != stateWaiting && cl.state != stateHeld {
		return
	}
	cl.leaseEnd = 0 // nothing is left in the store
	cl.loseLocked(cl.brokenLocked(reason, by))
}

// brokenLocked describes the loss of a claim that was broken, or that the store does not have.
func (cl *claim) brokenLocked(reason string, by lossBy) *lossError {
	unknown := "it was no longer in the store"
	if by == lossByOperator {
		unknown = "an operator broke it"
	}
	lost := cl.lossLocked(ErrBroken, cmp.Or(reason, unknown))
	lost.by = by
	return lost
}

// riskLocked reports once that the lease may end before it is renewed.
func (cl *claim) riskLocked(now int64, err error) {
	if cl.atRisk {
		return
	}
	cl.atRisk = true
	if cl.holder != nil {
		cl.holder.sendAtRisk(now, err)
	}
}

// heardLocked notes that the claim was broken, or given notice, at time at.
func (cl *claim) heardLocked(gone driver.GoneError, at int64) {
	if gone.Left > 0 {
		cl.hintNoticeLocked(gone, at, cl.c.clock.Now())
	} else {
		cl.goneLocked(gone.Reason, lossOf(gone))
	}
}
