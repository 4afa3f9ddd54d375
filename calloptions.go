package fencelock

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

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
}

// readOptions reads opts, refuses those that the call does not take, and contradictions.
func (o *callOptions) readOptions(takes optionSet, try bool, opts []Option) error {
	o.wait = -1
	for _, given := range opts {
		if given == nil {
			continue
		}
		opt := given.asOption()
		if opt.name&takes == 0 {
			return invalid("this call takes %s; leave out %s", takes, opt.name)
		}
		if err := opt.set(o); err != nil {
			return err
		}
	}
	return o.checkTogether(try)
}

func (o *callOptions) checkTogether(try bool) error {
	switch {
	case try && o.wait > 0:
		return invalid("a try does not wait: leave out Wait(%v), or call the waiting method", o.wait)
	case o.minHold > o.maxHold && o.maxHold > 0:
		return invalid("MinHold %v is longer than the holding may last", o.minHold)
	case o.progress > 0 && o.noRenewal:
		return invalid("Progress says when the watchdog renews; with NoRenewal there is no watchdog")
	case o.maxHold > 0 && o.progress >= o.maxHold:
		return invalid("MaxHold %v ends the lease before Progress %v; make Progress shorter", o.maxHold, o.progress)
	}
	if try {
		o.wait = 0
	}
	return nil
}

// beginNamed refuses a call with a ClaimID that cannot be kept, or that another call of this
// Client has.
func (a *acquisition) beginNamed() error {
	if a.claimID == "" {
		return nil
	}
	if _, err := a.c.detacher(); err != nil {
		return err
	}
	id := a.claimID
	if _, underWay := a.c.named.LoadOrStore(id, true); underWay {
		a.claimID = "" // of the other call
		return invalid("another call with this ClaimID is under way; wait until it has returned")
	}
	if len(a.c.schedule.Find(func(cl *claim) bool { return cl.id == id && cl.key != a.key })) > 0 {
		a.endNamed()
		return invalid("this ClaimID is that of a claim on another key; draw a new one for each wish")
	}
	return nil
}

func (a *acquisition) endNamed() {
	if a.claimID != "" {
		a.c.named.Delete(a.claimID)
	}
}

func (a *acquisition) prepare(opts []Option) error {
	if err := checkKey(a.key); err != nil {
		return err
	}
	if err := a.readOptions(a.takes, a.try, opts); err != nil {
		return err
	}
	a.try = a.wait == 0
	if a.backoff == nil {
		a.backoff = a.c.options.Backoff
	}
	if err := a.checkKind(); err != nil {
		return err
	}
	if err := a.fitTimes(); err != nil {
		return err
	}
	if a.ctx.Err() != nil {
		return errContext(a.ctx)
	}
	a.readTrace()
	a.until = never
	if a.wait > 0 && int64(a.wait) < never-a.start {
		a.until = a.start + int64(a.wait)
	}
	return nil
}

// checkKind refuses a kind of lock that cannot be, or that the backend does not keep.
func (a *acquisition) checkKind() error {
	switch {
	case a.permits && (a.capacity < 1 || a.capacity >= driver.RW):
		return invalid("the size of the semaphore is %d; want 1 to %d", a.capacity, driver.RW-1)
	case a.weight < 1:
		return invalid("the weight is %d; it must be at least 1", a.weight)
	case a.weight > a.capacity:
		return invalid("the weight %d is larger than the size %d of the semaphore and would wait forever",
			a.weight, a.capacity)
	case a.capacity < driver.RW && !a.c.info.Fair:
		return invalid("the %s backend cannot keep a semaphore safely", a.c.info.Name)
	}
	return nil
}

// fitTimes brings the times of the call into what the backend can do, or refuses them.
func (a *acquisition) fitTimes() error {
	c, info := a.c, &a.c.info
	d := cmp.Or(a.ttl, c.options.TTL)
	a.enterTTL = c.info.clampTTL(d)
	longest := c.info.clampTTL(c.options.TTL)
	if a.lockDelay > 0 {
		a.lockDelay = max(a.lockDelay, info.MinTTL)
	}
	a.patience = min(a.enterTTL, longest, tryPatience)
	switch {
	case a.noRenewal && a.enterTTL != d:
		return invalid("TTL is %v, with NoRenewal; the %s backend can do %v to %v", d, info.Name,
			c.info.minTTL(), c.info.maxTTL())
	case a.minHold > 0 && !info.Linger:
		return invalid("the %s backend cannot keep a key taken after its release; leave out MinHold", info.Name)
	case a.lockDelay > c.info.maxTTL()-a.enterTTL:
		return invalid("TTL %v and LockDelay %v are one lease in the store; the %s backend can do at most %v",
			a.enterTTL, a.lockDelay, info.Name, c.info.maxTTL())
	case a.minHold > c.info.maxTTL():
		return invalid("MinHold is %v; the %s backend can do at most %v", a.minHold, info.Name, c.info.maxTTL())
	}
	if every := renewEvery(a.enterTTL); a.progress > 0 && a.progress < every {
		return invalid("Progress is %v, less than the %v between two renewals of a lease of %v; make it longer, "+
			"or the TTL shorter", a.progress, every, a.enterTTL)
	}
	if a.enterTTL != d {
		c.events.warnOnce(a.event(), fmt.Errorf("a lease of %v is not possible on the %s backend; it is %v instead",
			d, info.Name, a.enterTTL))
	}
	if a.noRenewal && !a.try {
		a.shortenWait(longest)
	}
	return nil
}

// shortenWait has the claim wait with a lease of d at most: a waiter that dies keeps its place
// until its lease ends. Its full lease starts with the grant: by Enter itself if that is granted
// at once and the backend can, else by a renewal. Where a claim ends with its session, as
// on ZooKeeper, that is so whatever its lease, and the session may not allow a longer one later.
func (a *acquisition) shortenWait(d time.Duration) {
	if info := &a.c.info; !info.SharedLease || info.Linger {
		a.fullTTL, a.enterTTL = a.enterTTL, min(a.enterTTL, d)
	}
}

// tryPatience is the longest time for which a try asks a store that does not respond.
const tryPatience = 2 * time.Second

func (a *acquisition) enterTimeout() time.Duration {
	if a.try {
		return min(a.enterTTL/3, a.patience)
	}
	return min(a.enterTTL, a.c.info.clampTTL(a.c.options.TTL)) / 3 // a lease of hours is not tried for hours
}

// queuesLocally reports whether the call queues with the other goroutines of this process
// before it asks the store. All calls that do are alike, so that a claim can pass from one
// to another.
func (a *acquisition) queuesLocally() bool {
	return a.c.options.HandOff > 1 && a.capacity == driver.RW && a.weight == driver.RW &&
		!a.noRenewal && a.minHold == 0 && a.maxHold == 0 && a.progress == 0 && a.note == "" &&
		a.owner == "" && a.lockDelay == 0 && a.op != opOnce && a.claimID == "" &&
		a.enterTTL == a.c.info.clampTTL(a.c.options.TTL)
}

// readTrace asks Options.Trace for the trace of the call. A trace that cannot be kept is left
// out, because no lock fails for its trace.
func (a *acquisition) readTrace() {
	f := a.c.options.Trace
	if f == nil {
		return
	}
	trace := f(a.ctx)
	if err := checkText("the result of Options.Trace", trace, limit.Owner); err != nil {
		a.c.events.warnOnce(a.event(), fmt.Errorf("the claims go without a trace: %w", err))
		return
	}
	a.trace = trace
}

func (a *acquisition) newClaim() *claim {
	cl := &claim{
		c: a.c, queue: a.queue, key: a.key, id: a.claimID, ttl: a.enterTTL + a.lockDelay, turn: turn{span: 1},
		wish: wish{int32(a.capacity), int32(a.weight), a.noRenewal, a.claimID != ""},
	}
	if !cl.named {
		cl.id = rand.Text()
	}
	if a.queue != nil {
		cl.span = int32(a.c.options.HandOff)
	}
	if h := a.adopts; h != nil {
		cl.token, cl.span, cl.used = h.ticket.Token, int32(h.ticket.Span), int32(int64(h.token)-h.ticket.Token)
	}
	a.short = a.fullTTL > 0
	if a.fullTTL > a.enterTTL {
		cl.writeRare().longestTTL = a.fullTTL + a.lockDelay
	}
	if a.note != "" || a.owner != "" || a.trace != "" || a.lockDelay > 0 {
		rare := cl.writeRare()
		rare.note, rare.owner, rare.trace, rare.lockDelay = a.note, a.owner, a.trace, a.lockDelay
	}
	return cl
}

// storeInfo describes the store. Its methods say what calls may ask for there.
type storeInfo struct{ driver.Info }

// longestTTL keeps sums of times from overflowing where a backend has no limit.
const longestTTL = 100 * 365 * 24 * time.Hour

func (i *storeInfo) minTTL() time.Duration { return max(i.MinTTL, 10*minTTL) }

func (i *storeInfo) maxTTL() time.Duration {
	if i.MaxTTL <= 0 {
		return longestTTL
	}
	return i.MaxTTL
}

func (i *storeInfo) clampTTL(d time.Duration) time.Duration {
	return min(max(d, i.minTTL()), i.maxTTL())
}

// breakable returns how, the parameters of Break, as the backend can keep it.
func (i *storeInfo) breakable(how Break) (Break, error) {
	longest := i.maxTTL()
	if i.SharedLease { // a notice is kept apart from the lease
		longest = longestTTL
	}
	switch {
	case how.Notice < 0:
		return how, invalid("the notice is %v; it must not be negative", how.Notice)
	case how.Delay > 0 && !i.Linger:
		return how, invalid("the %s backend cannot keep a key closed after a break; leave out the delay", i.Name)
	case how.Delay > i.maxTTL():
		return how, invalid("the delay is %v; the %s backend can do at most %v", how.Delay, i.Name, i.maxTTL())
	case how.Notice > longest:
		return how, invalid("the notice is %v; the %s backend can do at most %v", how.Notice, i.Name, longest)
	}
	if how.Notice > 0 {
		how.Notice, how.Reason = max(how.Notice, i.MinTTL), cmp.Or(how.Reason, "an operator gave notice")
	}
	if how.Delay > 0 {
		how.Delay = max(how.Delay, i.MinTTL)
	}
	return how, nil
}

// canOnce refuses a slot that cannot be noted.
func (i *storeInfo) canOnce(slot time.Time) error {
	if !i.Fair {
		return invalid("the %s backend cannot remember which slots are done", i.Name)
	}
	if y := slot.UTC().Year(); y < 0 || y > 9999 {
		return invalid("the slot is in the year %d; it could be written, but not read again", y)
	}
	return nil
}
