package doctor

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
)

// Advice is a TTL for this store and this work.
type Advice struct {
	// Least is the shortest TTL that carries a lock over a failover, two of the slowest
	// requests, and a process that stands still for a second.
	Least time.Duration
	// TTL is the one to take.
	TTL time.Duration
	// Why says in sentences how these come about.
	Why []string
}

const (
	// standstill is how long a process may stand still: a garbage collection, a busy host, a
	// virtual machine that is moved.
	standstill = time.Second
	// longWork is what a lease need not outlive: a crashed holder would block others for as
	// long.
	longWork = time.Minute
)

// advise finds a TTL. A lease is renewed after a third of it, so two thirds are left for what
// goes wrong just then.
func (c *check) advise() Advice {
	tail, failover := 2*c.report.Requests.P999, c.report.Failover
	least := (failover + tail + standstill) * 3 / 2
	a := Advice{Least: c.possible(least)}
	of := "no failover is known of"
	if failover > 0 {
		of = "a failover takes " + round(failover).String()
	}
	a.say("%v is the least: a renewal is due when two thirds of a lease are left, and %s, two slow requests take "+
		"%v, and a process may stand still for %v.", a.Least, of, round(tail), standstill)
	if a.Least < least {
		a.say("The store can do no longer lease, and %v would be needed: a failover may cost locks.", upToSecond(least))
	}
	a.TTL = max(a.Least, c.possible(fencelock.DefaultTTL))
	outlives := c.possible(c.Work + c.Work/100 + tail + standstill)
	switch {
	case c.Work == 0:
		a.say("%v is the default of Options.TTL, or that least. A crashed holder blocks others for as long; a "+
			"shorter TTL blocks them less.", a.TTL)
	case outlives <= longWork && outlives >= c.Work:
		a.TTL = max(a.Least, outlives)
		a.say("%v outlives work of %v, so the work ends in time even if the store fails right after the grant.",
			a.TTL, c.Work)
	default:
		a.say("Work of %v is longer than a lease should be: a crashed holder blocks others for a whole TTL. It "+
			"depends on renewals, so let it stop when its lease is lost.", c.Work)
	}
	return a
}

func (a *Advice) say(format string, args ...any) { a.Why = append(a.Why, fmt.Sprintf(format, args...)) }

// possible returns the next whole second that the store can do.
func (c *check) possible(d time.Duration) time.Duration {
	info := c.backend.Info()
	d = max(upToSecond(d), info.MinTTL)
	if info.MaxTTL > 0 {
		d = min(d, info.MaxTTL)
	}
	return d
}

func upToSecond(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// round leaves three digits or so of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}
