// Package drivertest holds a backend to the laws of package driver.
//
// A backend's own test opens it and hands it over. This is all it takes, inside
// this repository and outside of it:
//
//	func TestLaws(t *testing.T) {
//		server := startServer(t)
//		open := func(t *testing.T) driver.Backend {
//			b := mystore.New(server.Address())
//			t.Cleanup(func() { b.Close() })
//			return b
//		}
//		drivertest.Run(t, open)
//		drivertest.Model(t, open)
//	}
//
// Run tests law by law, each with a sentence that says why the law matters.
// Model plays random operations and compares every answer with what the laws
// say. Which laws are tested follows from the backend's Info. Keys are drawn at
// random, so a store may be shared with other tests, and no claim stays behind.
//
// Package faulty, below this one, wraps a backend with faults on order.
package drivertest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
)

// Opener opens one more view of the store under test. Each call returns another
// Backend on the SAME store, as another process would have it: it shares nothing
// with the others but the store. (A store that lives in the value itself, as
// memlock does, is returned again and again.)
//
// Opener ends what it opens by t.Cleanup. It is called from the goroutine of the
// test, several times for each law.
type Opener = func(t *testing.T) driver.Backend

// Option says how to test a backend that is unlike others.
type Option func(*config)

type config struct {
	bubbles bool
	serving bool
	lease   time.Duration
	lag     time.Duration
	crash   func(driver.Backend)
	fresh   func() driver.Backend
	polls   bool
	grows   bool
	topics  []string
	long    bool // laws that take long on a real store, too
}

// InBubbles runs each law in a testing/synctest bubble, where time is virtual. It
// is for backends that live in the memory of the test, and whose goroutines, if
// there are any, end when the test does.
func InBubbles() Option { return func(c *config) { c.bubbles, c.long = true, true } }

// KeepsServing says that Close does nothing, because the value is the store
// itself. Calls after Close must then work as before.
func KeepsServing() Option { return func(c *config) { c.serving = true } }

// Lease sets the shortest lease that is used where a law is about time. The
// default is 300 ms, or the backend's MinTTL if that is longer. A round in which
// the machine was too slow to judge is played again with twice the lease.
func Lease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// ExpiryLag says how much later than its lease a claim may end on this store: for
// an election, or where sessions are looked through now and then. The default is
// one second.
func ExpiryLag(d time.Duration) Option { return func(c *config) { c.lag = d } }

// Crash says how to cut a view off from the store as kill -9 would, without
// leaving. It is needed where a connection keeps claims alive even if nobody
// calls Renew. f may be called from any goroutine.
func Crash(f func(driver.Backend)) Option { return func(c *config) { c.crash = f } }

// Polls says that a waiter asks for its grant about once a second, because nothing tells it. Other
// backends are held to half a second.
func Polls() Option { return func(c *config) { c.polls = true } }

// TokenGrows says that a claim has its final token when it is granted, and may have a lower one
// while it waits.
func TokenGrows() Option { return func(c *config) { c.grows = true } }

// Topics runs the laws of these topics alone, for a backend that has been tested whole
// and is opened in another way.
func Topics(names ...string) Option { return func(c *config) { c.topics = names } }

// Fresh says how to open another store, that is new: members of a quorum begin with
// a quarantine, which has a law. f ends what it opens by t.Cleanup.
func Fresh(t *testing.T, f Opener) Option {
	return func(c *config) { c.fresh = func() driver.Backend { return f(t) } }
}

// Run tests every law that the backend promises to keep. Outside of bubbles HugeSums, a line of two
// thousand, needs the build tag verify.
func Run(t *testing.T, open Opener, opts ...Option) {
	t.Helper()
	conf := config{lag: time.Second, long: verifying}
	for _, o := range opts {
		o(&conf)
	}
	sample := open(t)
	for _, name := range conf.topics {
		if !slices.ContainsFunc(topics, func(p topic) bool { return p.name == name }) {
			t.Fatalf("there is no topic %s", name)
		}
	}
	for _, topic := range topics {
		if conf.topics != nil && !slices.Contains(conf.topics, topic.name) {
			continue
		}
		t.Run(topic.name, func(t *testing.T) {
			for _, l := range topic.laws {
				if !l.applies(sample, conf) {
					continue
				}
				t.Run(l.name, func(t *testing.T) {
					if !conf.bubbles {
						t.Parallel()
					}
					play(t, conf.bubbles, func(t *testing.T) {
						l.test(t, func() driver.Backend { return open(t) }, conf)
					})
				})
			}
		})
	}
}

// tester is what a law needs of a *testing.T. This package's own test sees laws fail.
type tester interface {
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
}

// topic is one part of the contract, in one file.
type topic struct {
	name string
	laws []law
}

var topics = []topic{
	{"Grant", grantLaws},
	{"Token", tokenLaws},
	{"Ballot", ballotLaws},
	{"Lease", leaseLaws},
	{"Expiry", expiryLaws},
	{"Leave", leaveLaws},
	{"Reserve", reserveLaws},
	{"Break", breakLaws},
	{"Detach", detachLaws},
	{"Named", namedLaws},
	{"ReusedID", reusedLaws},
	{"Mark", markLaws},
	{"Linger", lingerLaws},
	{"Kind", kindLaws},
	{"Wake", wakeLaws},
	{"Key", keyLaws},
	{"Look", lookLaws},
	{"History", historyLaws},
	{"Limit", limitLaws},
	{"Context", contextLaws},
	{"Close", closeLaws},
	{"Concurrent", concurrentLaws},
}

// law is one law, or one consequence of a law, and the schedule that shows it.
type law struct {
	name  string
	when  condition                  // nil: every backend keeps it
	check func(w *world, key string) // key is the law's own
	why   string                     // printed when it fails
}

// condition says whether a backend, tested as c says, has to keep a law.
type condition func(b driver.Backend, c config) bool

// applies reports whether b, tested with c, has to keep the law.
func (l law) applies(b driver.Backend, c config) bool { return l.when == nil || l.when(b, c) }

// test plays the law, cleans up after it, and makes sure that it left nothing.
func (l law) test(t tester, open func() driver.Backend, conf config) {
	ctx, cancel := context.WithTimeout(context.Background(), lawLimit)
	defer cancel()
	defer func() {
		if t.Failed() {
			t.Logf("why %s matters: %s", l.name, l.why)
		}
	}()
	w := newWorld(ctx, located{t}, open, conf)
	defer w.clean()
	l.check(w, w.key())
}

// located names the line of the law in each failure, so that no helper needs t.Helper.
type located struct{ tester }

func (l located) Errorf(format string, args ...any) {
	l.tester.Errorf("%s%s", lawLine(), fmt.Sprintf(format, args...))
}

func (l located) Fatalf(format string, args ...any) {
	l.tester.Fatalf("%s%s", lawLine(), fmt.Sprintf(format, args...))
}

// lawLine is the line that runs in the law: laws are literals, so they are functions of init.
func lawLine() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.Contains(frame.Function, "drivertest.init.") {
			return fmt.Sprintf("%s:%d: ", filepath.Base(frame.File), frame.Line)
		}
	}
	return ""
}

// all is the condition that all of conditions hold.
func all(conditions ...condition) condition {
	return func(b driver.Backend, c config) bool {
		return !slices.ContainsFunc(conditions, func(f condition) bool { return !f(b, c) })
	}
}

// What laws ask of a backend, and of the options that it is tested with.

func fair(b driver.Backend, _ config) bool       { return b.Info().Fair }
func long(_ driver.Backend, c config) bool       { return c.long }
func unfair(b driver.Backend, _ config) bool     { return !b.Info().Fair }
func lingers(b driver.Backend, _ config) bool    { return b.Info().Linger }
func follows(b driver.Backend, _ config) bool    { return b.Info().After }
func lingersNot(b driver.Backend, _ config) bool { return !b.Info().Linger }
func perClaim(b driver.Backend, _ config) bool   { return !b.Info().SharedLease }
func hasAlarm(b driver.Backend, _ config) bool   { return is[driver.Alarm](b) }
func reserves(b driver.Backend, _ config) bool   { return is[driver.Reserver](b) }
func closes(_ driver.Backend, c config) bool     { return !c.serving }
func serves(_ driver.Backend, c config) bool     { return c.serving }
func opensNew(_ driver.Backend, c config) bool   { return c.fresh != nil }

func ballots(b driver.Backend, _ config) bool {
	m, ok := b.(ballot.Member)
	return ok && m.IsMember()
}

func is[T any](b driver.Backend) bool {
	_, ok := b.(T)
	return ok
}
