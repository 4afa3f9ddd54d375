package fencelock

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/internal/limit"
)

// DefaultTTL is the lease of a claim: long enough for the failover of most
// stores, short enough that a crashed holder is not missed for long.
const DefaultTTL = 30 * time.Second

// defaultHandOff is the number of grants that one claim may serve inside a process
// before it leaves the store's line and joins it again behind the others.
const defaultHandOff = 64

// Options configure a Client. Nil and the zero value are ready to use. New refuses bad
// values with ErrInvalid.
type Options struct {
	// Owner is shown to people with each claim of this Client; by default program@host/pid.
	// At most 256 bytes. It has no effect on who gets a lock.
	Owner string

	// TTL is the lease of every claim; default 30 s. Make it longer than the failover of
	// the store. A lease is renewed until its release, so the TTL bounds how long a crashed
	// holder blocks others, not how long a lock may be held.
	TTL time.Duration

	// HandOff is the number of goroutines of this process that may hold a key one after
	// another on one claim, without a request; default 64, at most 65535. Then the claim
	// leaves, and the next goroutine joins the line behind others. On Redis and in memory,
	// while no other process is in line, the Client reserves more grants before they are
	// used up. Another process then waits for at most 2×HandOff grants. If grants are
	// quicker than the store, it waits for the grants of four round trips, at most
	// 8×HandOff. It never waits longer than one TTL. 1 switches the hand-off off:
	// goroutines queue in the store, in strict order.
	HandOff int

	// OnEvent is called with each Event, one at a time and in order, on one goroutine of the
	// Client. The Client holds no lock meanwhile, and no renewal waits for it: a slow OnEvent
	// delays only the next events. At most 4096 events wait. Further events are dropped and
	// counted in Event.Dropped. OnEvent may call the Client, and must not panic. Nil costs
	// nothing. LogEvents writes the events to a log.
	OnEvent func(Event)

	// Trace returns what identifies the work under ctx to others, such as a W3C
	// traceparent: UTF-8 text of at most 256 bytes, or "". It is called once per call that
	// takes a lock, with the ctx of that call. The claim carries the text in the store,
	// next to the note, and callers that find the lock taken get it in HeldError.Trace. It
	// costs no request. Goroutines that pass a lock on inside this process share the claim
	// of the first, and its trace in the store. Trace must be safe for concurrent use.
	Trace func(ctx context.Context) string

	// Backoff decides when a failed request is repeated. Default:
	// ExponentialBackoff(10*time.Millisecond, time.Second).
	Backoff Backoff
}

// withDefaults returns a copy with defaults, or says which value is bad.
func (o *Options) withDefaults() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	if s.Owner == "" {
		s.Owner = defaultOwner()
	}
	s.TTL, s.HandOff = cmp.Or(s.TTL, DefaultTTL), cmp.Or(s.HandOff, defaultHandOff)
	if s.Backoff == nil {
		s.Backoff = ExponentialBackoff(10*time.Millisecond, time.Second)
	}
	if s.HandOff < 1 || s.HandOff > limit.Span {
		return s, invalid("Options.HandOff is %d; want 1 to %d, or 0 for the default", s.HandOff, limit.Span)
	}
	return s, cmp.Or(checkText("Options.Owner", s.Owner, limit.Owner), checkTTL("Options.TTL", s.TTL))
}

// minTTL catches TTL(30), which is 30 ns, before it reaches a store.
const minTTL = time.Millisecond

func checkTTL(what string, d time.Duration) error {
	switch {
	case d <= 0:
		return invalid("%s is %v; it must be positive", what, d)
	case d < minTTL:
		return invalid("%s is %v, below %v; a duration needs a unit, as in 30*time.Second", what, d, minTTL)
	}
	return nil
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	program := "unknown"
	if len(os.Args) > 0 && os.Args[0] != "" {
		program = strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	}
	owner := fmt.Sprintf("%s@%s/%d", program, host, os.Getpid())
	if len(owner) > limit.Owner {
		owner = owner[len(owner)-limit.Owner:]
	}
	return strings.ToValidUTF8(owner, "")
}

// Option changes one call that takes a lock. LockAll does not take ClaimID, nor Once Reentrant:
// such a call is ErrInvalid. A nil Option is ignored.
type Option interface{ asOption() *option }

// LeaseOption is an Option that Detached.Adopt takes as well.
type LeaseOption interface {
	Option
	leaseOption()
}

type option struct {
	name optionSet
	set  func(*callOptions) error
}

func (o *option) asOption() *option { return o }

type leaseOption struct{ option }

func (*leaseOption) leaseOption() {}

func ofLease(name optionSet, set func(*callOptions) error) LeaseOption {
	return &leaseOption{option{name, set}}
}

// Wait bounds how long a call may wait in line, not how long the lock is held.
// 0 makes the call a try. Without Wait, only ctx bounds the waiting.
func Wait(d time.Duration) Option {
	return &option{optionWait, func(o *callOptions) error {
		o.wait = d
		return checkNotNegative("Wait", d)
	}}
}

// TTL gives this claim another lease than Options.TTL. A TTL outside the backend's limits
// is raised or cut to the limit, and an EventWarning reports that; with NoRenewal it is ErrInvalid.
// The lease is renewed after a third of it, and each renewal may take another third.
func TTL(d time.Duration) LeaseOption {
	return ofLease(optionTTL, func(o *callOptions) error {
		o.ttl = d
		return checkTTL("TTL", d)
	})
}

// NoRenewal switches the watchdog off: the lease lasts its whole TTL from the grant, and from
// each Lease.Renew. Without one in time it is lost with ErrExpired; EventAtRisk warns when two
// thirds have passed. Its length is a promise, so a TTL that the backend cannot do is ErrInvalid.
//
// It costs one more round trip if the call has waited. On stores other than Redis and memory it
// also does if the call may wait and the TTL is longer than Options.TTL: a waiter that dies must
// not keep its place for that long. Goroutines of one process queue in the store.
func NoRenewal() LeaseOption {
	return ofLease(optionNoRenewal, func(o *callOptions) error {
		o.noRenewal = true
		return nil
	})
}

// MaxHold ends the lease with ErrMaxHold after d, counted from the grant, also if its
// holder is alive. Until then it is renewed.
func MaxHold(d time.Duration) LeaseOption {
	return ofLease(optionMaxHold, func(o *callOptions) error {
		o.maxHold = d
		return checkTTL("MaxHold", d)
	})
}

// Progress bounds how long the lease is renewed without a call of Lease.Tick: the watchdog
// renews it only while the last Tick, or the grant, is less than d ago. Otherwise the
// holder is stalled: EventAtRisk has ErrStalled, and when the lease ends, less than d and
// one TTL after the last Tick, it is lost with ErrStalled. A Tick before that renews it at
// once. A job that hangs is therefore not renewed. Time in which the process or the machine
// is paused counts.
//
// d is at least the time between two renewals, a third of the TTL, and shorter than
// MaxHold; else the call is ErrInvalid, as with NoRenewal, which has no watchdog. With
// Reentrant, a Tick of any handle counts for the shared lease, and Progress belongs to the
// outer call. With LockAll each lease needs its own Tick. Goroutines of one process queue
// in the store.
func Progress(d time.Duration) LeaseOption {
	return ofLease(optionProgress, func(o *callOptions) error {
		o.progress = d
		return checkTTL("Progress", d)
	})
}

// MinHold keeps the key taken until d has passed since the grant, even if it is
// released sooner: the store counts the rest, and Release returns at once. A rest
// below the backend's shortest lease lasts as long as that. It keeps a job that is
// shorter than the clocks' skew from running twice.
func MinHold(d time.Duration) LeaseOption {
	return ofLease(optionMinHold, func(o *callOptions) error {
		o.minHold = d
		return checkNotNegative("MinHold", d)
	})
}

// LockDelay keeps the key closed for d after the lease has ended without a release: because
// its process died, or lost the store, because of MaxHold, or because of a Break. The last
// writes of a holder that learns late of its loss, or never, then land before another
// holder begins. After Release the key is free at once. The delay also follows Close of the
// Client, and Break, where the store can keep a key that was left (not on ZooKeeper and a
// quorum). Break may be given another delay.
//
// It costs no request: the store keeps a lease that is longer by d than its holder counts on,
// so TTL and d together are at most the longest lease of the store; more is ErrInvalid. A
// claim that waits when its process dies keeps its place for d longer, too. Goroutines of
// one process queue in the store.
func LockDelay(d time.Duration) Option {
	return &option{optionLockDelay, func(o *callOptions) error {
		o.lockDelay = d
		return checkNotNegative("LockDelay", d)
	}}
}

// Reentrant shares the lease that ctx already carries for the key, if any: the
// call returns a new handle on the same grant, with the same token. Each handle
// is released on its own; the lock is free when the last one is. It does not
// exclude goroutines that share a ctx from one another. While the lease is being
// detached, the call fails with ErrDetached. Without it, such a call is ErrDeadlock.
func Reentrant() Option {
	return &option{optionReentrant, func(o *callOptions) error {
		o.reentrant = true
		return nil
	}}
}

// Retry sets the Backoff of this call, instead of Options.Backoff.
func Retry(b Backoff) LeaseOption {
	return ofLease(optionRetry, func(o *callOptions) error {
		o.backoff = b
		if b == nil {
			return invalid("Retry was given no Backoff")
		}
		return nil
	})
}

// Note adds free text to the claim, which is shown next to the owner: UTF-8 without zero
// bytes, at most 1024 bytes.
func Note(s string) LeaseOption {
	return ofLease(optionNote, func(o *callOptions) error {
		o.note = s
		return checkText("Note", s, limit.Note)
	})
}

// ClaimID names the claim of the call, so that any process of the same store can repeat the
// call. All calls with this id for this key share one place in the line, and one grant with
// one token. It is for services that may receive a request twice.
//
// The id has 16 to 64 letters, digits, "-" and "_". Draw it from 128 random bits for each lock
// that is wanted. When ctx ends, or the Client is closed, the claim stays until its lease ends,
// so that a repeated call finds it. Release removes the claim from the line, and so does a
// Wait that ran out. The id is spent then: a call with it returns ErrLost for a while. The
// call also returns ErrLost if the claim ended while it waited.
//
// The id is for one key, one kind of lock and one number of permits. A call that has it for
// another of these is ErrInvalid while the claim is in line, and changes nothing of that claim.
//
// Two processes that repeat one call both get the grant; the program must make sure that
// only one of them uses it. A Wait that runs out in one of them ends the waiting of both.
// If the claim is granted by then, that Wait ends nothing, and its call returns the grant,
// too. In one Client, a second call with the id of one that is under way is ErrInvalid.
// Goroutines do not queue in this process for such a claim. ErrInvalid on a backend that
// cannot pass claims between processes (ZooKeeper, a quorum).
func ClaimID(id string) Option {
	return &option{optionClaimID, func(o *callOptions) error {
		o.claimID = id
		if !isClaimID(id) {
			return invalid("ClaimID is %s; want 16 to 64 letters, digits, \"-\" and \"_\"", printable(id))
		}
		return nil
	}}
}

func isClaimID(id string) bool {
	odd := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	return len(id) >= 16 && len(id) <= 64 && !strings.ContainsFunc(id, odd)
}

// Owner sets another owner than Options.Owner for this call, for a program that takes locks
// on behalf of others; at most 256 bytes. It has no effect on who gets the lock. Goroutines
// of one process queue in the store then.
func Owner(s string) LeaseOption {
	return ofLease(optionOwner, func(o *callOptions) error {
		o.owner = s
		return checkText("Owner", s, limit.Owner)
	})
}

func checkNotNegative(what string, d time.Duration) error {
	if d < 0 {
		return invalid("%s is %v; it must not be negative", what, d)
	}
	return nil
}

// checkText refuses text that not every store can keep.
func checkText(what, s string, most int) error {
	switch {
	case !utf8.ValidString(s) || strings.Contains(s, "\x00"):
		return invalid("%s is not text: it must be UTF-8 without zero bytes", what)
	case len(s) > most:
		return invalid("%s has %d bytes; at most %d", what, len(s), most)
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty")
	case len(key) > limit.Key:
		return invalid("the key has %d bytes; at most %d", len(key), limit.Key)
	}
	return nil
}

// Backoff returns how long to pause after a failed request, and whether to try again.
// attempt counts the failures in a row from 1. last is the newest failure: a transient
// error of the store, or a *HeldError if the backend keeps no line and is polled. If again
// is false, the call returns last, as ErrUnavailable or ErrNotAcquired.
//
// A pause is at least 1 ms, and no longer than the call may wait. Waiting in line is not a
// failure: Wait bounds the waiting. Renewals and releases use only the pause, and are
// repeated as long as a repeat can help. Of the goroutines of one process that queue for a
// key, only the first sends requests, with its own Backoff.
//
// A Backoff that pauses for a second, and gives up after three failures in a row:
//
//	func(attempt int, last error) (time.Duration, bool) { return time.Second, attempt < 3 }
//
// A Backoff must be safe for concurrent use, and must not call the Client.
type Backoff func(attempt int, last error) (pause time.Duration, again bool)

// ExponentialBackoff returns a Backoff that doubles the pause from first to longest. It
// draws each pause from its upper half, so that programs that failed together do not retry
// together.
func ExponentialBackoff(first, longest time.Duration) Backoff {
	return func(attempt int, _ error) (time.Duration, bool) {
		d := min(first, longest)
		for ; attempt > 1 && d > 0 && d < longest; attempt-- {
			d = min(2*d, longest)
		}
		return d/2 + rand.N(max(d/2, 0)+1), true
	}
}

const (
	shortestPause = time.Millisecond
	longestPause  = 24 * time.Hour
)

func (b Backoff) pauseAfter(attempt int, last error) (pause time.Duration, again bool) {
	pause, again = b(attempt, last)
	return min(max(pause, shortestPause), longestPause), again
}
