package fencelock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/driver"
)

const (
	// DefaultTTL is the lease of a claim: long enough for the failover of most
	// stores, short enough that a crashed holder is not missed for long.
	DefaultTTL = 30 * time.Second

	// DefaultHandOff is how many grants one claim may serve inside a process
	// before it leaves the store's line and joins it again behind the others.
	DefaultHandOff = 64
)

// Options configure a Client. Nil and the zero value are ready to use. Bad values
// make the first call return ErrInvalid.
type Options struct {
	// Owner is shown to people beside what this Client holds; by default
	// program@host/pid. At most 256 bytes. It decides nothing.
	Owner string

	// TTL is the lease of every claim; default 30 s. Make it longer than the
	// failover of the store. It is renewed every TTL/3 until released, so it says
	// how long a crashed holder blocks the others, not how long one may hold.
	TTL time.Duration

	// HandOff is how many goroutines of this process may hold a key one after
	// another on one claim, without asking the store; default 64, at most 65535. Then
	// the claim leaves, and the next goroutine joins the line behind others. On Redis
	// and in memory, while no other process is in line, the store is asked for more
	// grants before they are used up. Another process then waits for at most 2×HandOff
	// grants. Where grants are quicker than the store, it waits for those made during
	// four answers of the store, at most 8×HandOff. It never waits longer than one TTL.
	// 1 switches the hand-off off: goroutines queue in the store, in strict order.
	HandOff int

	// Hooks are called when something happens.
	Hooks Hooks

	// Backoff is how long to pause before the next try, after a transient error
	// or where a backend cannot queue; attempt counts from 1. It is clipped to
	// what is left of Wait, and at least 1 ms. Many goroutines call it at once, and
	// it must not call the Client. Default: doubling from 10 ms to 1 s, with jitter.
	Backoff func(attempt int) time.Duration
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
	if s.TTL == 0 {
		s.TTL = DefaultTTL
	}
	if s.HandOff == 0 {
		s.HandOff = DefaultHandOff
	}
	if backoff := s.Backoff; backoff == nil {
		s.Backoff = defaultBackoff
	} else {
		s.Backoff = func(attempt int) time.Duration {
			return min(max(backoff(attempt), time.Millisecond), 24*time.Hour)
		}
	}
	switch {
	case !isText(s.Owner):
		return s, invalid("Options.Owner is not text: it must be UTF-8 without zero bytes")
	case len(s.Owner) > driver.MaxOwner:
		return s, invalid("Options.Owner has %d bytes; at most %d", len(s.Owner), driver.MaxOwner)
	case s.HandOff < 1 || s.HandOff > driver.MaxSpan:
		return s, invalid("Options.HandOff is %d; want 1 to %d, or 0 for the default", s.HandOff, driver.MaxSpan)
	}
	return s, checkTTL("Options.TTL", s.TTL)
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
	if len(owner) > driver.MaxOwner {
		owner = owner[len(owner)-driver.MaxOwner:]
	}
	return strings.ToValidUTF8(owner, "")
}

// defaultBackoff doubles from 10 ms to 1 s and takes a random part of the upper
// half, so that clients that failed together do not come back together.
func defaultBackoff(attempt int) time.Duration {
	d := time.Second
	if attempt < 8 {
		d = 10 * time.Millisecond << max(attempt-1, 0)
	}
	d = min(d, time.Second)
	return d/2 + rand.N(d/2+1)
}

// Option changes one call.
type Option struct {
	set  setting
	d    time.Duration
	text string
}

type setting uint8

const (
	setWait setting = iota + 1
	setTTL
	setFixed
	setMaxHold
	setMinHold
	setReentrant
	setNote
)

// Wait bounds how long a call may wait in line; the holding is not bounded by it.
// 0 makes the call a try. Without Wait, only ctx bounds the waiting.
func Wait(d time.Duration) Option { return Option{set: setWait, d: d} }

// TTL gives this claim another lease than Options.TTL. Outside what the backend
// can do it is raised or cut, and Hooks.Warn reports that.
func TTL(d time.Duration) Option { return Option{set: setTTL, d: d} }

// FixedLease takes the lock for d and does not renew it: after d it is lost. It
// is TTL(d) with MaxHold(d) and no watchdog, and excludes both. A d that the
// backend cannot do is ErrInvalid.
func FixedLease(d time.Duration) Option { return Option{set: setFixed, d: d} }

// MaxHold ends the lease with ErrMaxHold after d, counted from the grant, however
// alive its holder is. Until then it is renewed.
func MaxHold(d time.Duration) Option { return Option{set: setMaxHold, d: d} }

// MinHold keeps the key taken until d has passed since the grant, even if it is
// released sooner: the store counts the rest, and Release returns at once. A rest
// below the backend's shortest lease lasts as long as that. It keeps a job that is
// shorter than the clocks' skew from running twice.
func MinHold(d time.Duration) Option { return Option{set: setMinHold, d: d} }

// Reentrant shares the lease that ctx already carries for the key, if any: the
// call returns a new handle on the same grant, with the same token. Each handle
// is released on its own; the lock is free when the last one is. It does not
// exclude goroutines that share a ctx from one another. Without it, such a call
// is ErrDeadlock.
func Reentrant() Option { return Option{set: setReentrant} }

// Note is free text that others see beside the owner; at most 1024 bytes.
func Note(s string) Option { return Option{set: setNote, text: s} }

// callOptions are the options of one call.
type callOptions struct {
	wait      time.Duration // 0 for a try; negative: without bound
	ttl       time.Duration // 0: the Client's
	maxHold   time.Duration // 0: without bound
	minHold   time.Duration
	note      string
	fixed     bool
	reentrant bool
	given     uint16 // bit per setting
}

func (c *callOptions) has(s setting) bool { return c.given&(1<<s) != 0 }

// hasTimes reports options that a shared lease cannot honour.
func (c *callOptions) hasTimes() bool {
	return c.has(setTTL) || c.has(setFixed) || c.has(setMaxHold) || c.has(setMinHold)
}

// readOptions reads opts and refuses contradictions.
func (c *callOptions) readOptions(try bool, opts []Option) error {
	if !try {
		c.wait = -1
	}
	for _, o := range opts {
		if err := c.read(try, o); err != nil {
			return err
		}
	}
	switch {
	case c.fixed && (c.has(setTTL) || c.has(setMaxHold)):
		return invalid("FixedLease is a TTL and a MaxHold in one; leave those two out")
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return invalid("MinHold %v is longer than MaxHold %v", c.minHold, c.maxHold)
	}
	return nil
}

func (c *callOptions) read(try bool, o Option) (err error) {
	c.given |= 1 << o.set
	switch o.set {
	case setWait:
		c.wait = o.d
		if try && o.d > 0 {
			return invalid("a try does not wait: leave out Wait(%v), or call the waiting method", o.d)
		}
		return checkNotNegative("Wait", o.d)
	case setTTL:
		c.ttl = o.d
		return checkTTL("TTL", o.d)
	case setFixed:
		c.fixed, c.ttl, c.maxHold = true, o.d, o.d
		return checkTTL("FixedLease", o.d)
	case setMaxHold:
		c.maxHold = o.d
		return checkTTL("MaxHold", o.d)
	case setMinHold:
		c.minHold = o.d
		return checkNotNegative("MinHold", o.d)
	case setReentrant:
		c.reentrant = true
	case setNote:
		c.note = o.text
		return checkNote(o.text)
	}
	return nil
}

func checkNotNegative(what string, d time.Duration) error {
	if d < 0 {
		return invalid("%s is %v; it must not be negative", what, d)
	}
	return nil
}

func checkNote(s string) error {
	switch {
	case !isText(s):
		return invalid("Note is not text: it must be UTF-8 without zero bytes")
	case len(s) > driver.MaxNote:
		return invalid("Note has %d bytes; at most %d", len(s), driver.MaxNote)
	}
	return nil
}

// isText reports whether every store can keep s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty")
	case len(key) > driver.MaxKey:
		return invalid("the key has %d bytes; at most %d", len(key), driver.MaxKey)
	}
	return nil
}
