package fencelock

import (
	"strings"
	"time"
)

// optionSet is a set of options. An Option is a set of one.
type optionSet uint16

const (
	optionWait optionSet = 1 << iota
	optionTTL
	optionNoRenewal
	optionMaxHold
	optionProgress
	optionMinHold
	optionLockDelay
	optionReentrant
	optionRetry
	optionNote
	optionClaimID
	optionOwner
	optionsEnd
)

// optionNames are the names of the options, in the order of their bits.
var optionNames = strings.Fields(
	"Wait TTL NoRenewal MaxHold Progress MinHold LockDelay Reentrant Retry Note ClaimID Owner")

// The options that each call takes. Every call reads its options by readOptions, which refuses
// the others.
const (
	lockTakes  = optionsEnd - 1             // also RLock, Do, Acquire and all tries
	allTakes   = lockTakes &^ optionClaimID // of LockAll: a ClaimID names one claim
	onceTakes  = lockTakes &^ optionReentrant
	adoptTakes = optionTTL | optionNoRenewal | optionMaxHold | optionProgress | optionMinHold |
		optionRetry | optionNote | optionOwner
	breakTakes  = optionLockDelay // also Revoke
	finishTakes = optionOwner
)

// String returns the names of the options in the set, for an error.
func (s optionSet) String() string {
	var names []string
	for i, name := range optionNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// callOptions are the options of one call. A time that is zero was not given.
type callOptions struct {
	wait      time.Duration // 0 for a try; negative: without bound
	ttl       time.Duration
	maxHold   time.Duration
	minHold   time.Duration
	progress  time.Duration
	lockDelay time.Duration
	note      string
	claimID   string // "": drawn by this package
	owner     string // "": Options.Owner
	reentrant bool
	noRenewal bool
	backoff   Backoff // nil: Options.Backoff
	given     optionSet
}

// readOptions reads opts, refuses those that the call does not take, and contradictions.
func (o *callOptions) readOptions(takes optionSet, try bool, opts []Option) error {
	o.wait = -1
	for _, opt := range opts {
		switch {
		case opt.set == nil:
			continue
		case opt.name&takes == 0:
			return invalid("this call takes %s; leave out %s", takes, opt.name)
		}
		o.given |= opt.name
		if err := opt.set(o); err != nil {
			return err
		}
	}
	return o.checkTogether(try)
}

// checkTogether refuses options that contradict each other, or the call.
func (o *callOptions) checkTogether(try bool) error {
	switch {
	case try && o.wait > 0:
		return invalid("a try does not wait: leave out Wait(%v), or call the waiting method", o.wait)
	case o.minHold > o.maxHold && o.maxHold > 0:
		return invalid("MinHold %v is longer than the holding may last", o.minHold)
	}
	if try {
		o.wait = 0
	}
	return o.checkProgress()
}

// checkProgress refuses a Progress that contradicts how the lease is renewed, or how long it
// may last.
func (o *callOptions) checkProgress() error {
	switch {
	case o.progress == 0:
		return nil
	case o.noRenewal:
		return invalid("Progress says when the watchdog renews; with NoRenewal there is no watchdog")
	case o.maxHold > 0 && o.progress >= o.maxHold:
		return invalid("MaxHold %v ends the lease before Progress %v; make Progress shorter", o.maxHold, o.progress)
	}
	return nil
}
