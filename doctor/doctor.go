// Package doctor says whether a store is set up for locks, and which TTL suits it.
//
//	report, err := doctor.Check(ctx, backend, &doctor.Options{Work: 20 * time.Second})
//	if err != nil {
//		return err
//	}
//	for _, f := range report.Findings {
//		fmt.Println(f.Severity, f.String())
//	}
//
// The command is fencelock doctor. The page docs/doctor.md lists all findings and what to do
// about each.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
)

// Options say what the locks are for. Nil and the zero value are ready.
type Options struct {
	// TTL is the lease that programs ask for; fencelock.DefaultTTL if zero.
	TTL time.Duration
	// Work is how long the work under a lock takes, the longest of a thousand times; zero if
	// unknown.
	Work time.Duration
	// Failover is how long the store takes to replace a server that died; zero stands for
	// what the store's settings say.
	Failover time.Duration
	// Requests is how many requests are measured; 200 if zero.
	Requests int
	// For is how long the requests are spread over; two seconds if zero. The rate of the
	// store's clock is known to about 0.1 % after two seconds on a near network.
	For time.Duration
}

func (o *Options) settled() (Options, error) {
	s := Options{}
	if o != nil {
		s = *o
	}
	s.TTL, s.Requests = cmp.Or(s.TTL, fencelock.DefaultTTL), cmp.Or(s.Requests, 200)
	s.For = cmp.Or(s.For, 2*time.Second)
	switch {
	case s.TTL < 0 || s.Work < 0 || s.Failover < 0 || s.For < 0:
		return s, errors.New("doctor: TTL, Work, Failover and For are not negative")
	case s.Requests < 2 || s.Requests > 1e6:
		return s, fmt.Errorf("doctor: Requests is %d; want 2 to a million", s.Requests)
	}
	return s, nil
}

// Report is what Check has found out.
type Report struct {
	Findings []health.Finding // the worst first
	Requests Latency
	Clock    *Clock        // nil if the store does not tell its time
	Failover time.Duration // as the store or Options say; 0 if unknown
	Advice   Advice
}

// Severity returns the worst severity of the findings, and whether there is any.
func (r *Report) Severity() (worst health.Severity, found bool) {
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst, len(r.Findings) > 0
}

// Check examines the store of b, and measures it from here.
//
// It has the backend read the store's settings, if the backend is a health.Examiner. Then it
// takes one lock with a random name, renews it until Options.Requests are made, and releases
// it. Some stores remember the last token of a name for a day. Check loads the store with one
// request at a time. It takes Options.For and a few seconds more, unless the store is slow.
//
// A store that refuses locks is a finding. The error is for bad Options, and for a store of
// which nothing could be learned. b may belong to a Client.
func Check(ctx context.Context, b driver.Backend, o *Options) (Report, error) {
	settled, err := o.settled()
	if err != nil {
		return Report{}, err
	}
	c := check{Options: settled, backend: b}
	examined := c.examine(ctx)
	measured := c.measure(ctx)
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("doctor: %w", ctx.Err())
	}
	if examined != nil && measured != nil {
		return Report{}, fmt.Errorf("doctor: %w", errors.Join(examined, measured))
	}
	c.judge(examined, measured)
	c.report.Advice = c.advise()
	slices.SortStableFunc(c.report.Findings, func(a, b health.Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
	return c.report, nil
}

// check is one call of Check.
type check struct {
	Options
	backend    driver.Backend
	serverTime bool
	last       error // of a renewal that failed
	report     Report
}

func (c *check) add(severity health.Severity, code, setting, value, why, remedy string) {
	c.report.Findings = append(c.report.Findings, health.Finding{
		Severity: severity, Code: code, Setting: setting, Value: value, Why: why, Remedy: remedy,
	})
}

// examineTimeout bounds an examination.
const examineTimeout = 15 * time.Second

// errNoExaminer says that a backend has no settings to examine, or does not know how.
var errNoExaminer = errors.New("the backend does not examine its store")

// examine asks the backend for what its store's settings mean.
func (c *check) examine(ctx context.Context) error {
	c.report.Failover = c.Failover
	examiner, ok := c.backend.(health.Examiner)
	if !ok {
		return errNoExaminer
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	e, err := examiner.Examine(ctx, c.TTL)
	if err != nil {
		return err
	}
	c.report.Findings = e.Findings
	c.report.Failover = cmp.Or(c.Failover, e.Failover)
	c.serverTime = e.ServerTime
	return nil
}

// judge adds the findings that follow from what was measured.
func (c *check) judge(examined, measured error) {
	if examined != nil && examined != errNoExaminer {
		c.add(health.Note, "not-examined", "settings", health.OneLine(examined.Error()),
			"The store's settings could not be read.", "do what the message says, then run doctor again")
	}
	r := &c.report.Requests
	switch {
	case driver.Gone(measured):
		c.add(health.Error, "lock-lost", "a renewal", health.OneLine(measured.Error()),
			"The store forgot a lock within seconds.",
			"stop what deletes data there (FLUSHALL, TRUNCATE, a job that tidies up), then run doctor again")
	case measured != nil:
		c.add(health.Error, "lock-refused", "a lock", health.OneLine(measured.Error()),
			"The store did not grant a lock that nobody else wants.", "do what the message says, then run doctor again")
	case r.Failed > 0:
		c.add(health.Warning, "requests-failed", "renewals",
			fmt.Sprintf("%d of %d failed, the last with: %s", r.Failed, r.N, health.OneLine(c.last.Error())),
			"Nothing else was wrong when they failed. Locks are lost when the renewals of two thirds of a lease "+
				"fail.",
			"run doctor on the host of the store: if requests fail there too, do what the message says; if not, "+
				"repair the network in between")
	}
	if least := 3 * r.P999; least > c.TTL {
		c.add(health.Warning, "request-tail", "p99.9 of requests", round(r.P999).String(),
			"Two slow renewals in a row take the two thirds that are left of a lease of "+c.TTL.String()+".",
			"a TTL of "+upToSecond(least).String()+" or more")
	}
	if c.Failover*3/2 > c.TTL {
		c.add(health.Warning, "failover-time", "failover", c.Failover.String(),
			"Two thirds of a lease of "+c.TTL.String()+" are left when a server dies before a renewal. The "+
				"failover takes longer, so its holders lose their locks.",
			"a TTL of "+upToSecond(c.Failover*3/2).String()+" or more")
	}
	c.judgeClock()
}

// drift is by how much the rates of two clocks may differ: the core ends a lease a hundredth
// early.
const drift = 0.01

func (c *check) judgeClock() {
	k := c.report.Clock
	if k == nil {
		return
	}
	if k.Rate-k.Error > 1+drift || k.Rate+k.Error < 1-drift {
		rate := fmt.Sprintf("%.3f of the rate here", k.Rate)
		c.add(health.Warning, "clock-rate", "clock of the store", rate,
			"A holder counts its lease by the clock of its host, and the store by its own. They differ by more "+
				"than the hundredth that is allowed for, so a holder whose renewals fail may overlap the next one.",
			"timedatectl set-ntp true on both hosts, then run doctor again; if it is found again, have the virtual "+
				"machine take its clock from its host")
	}
	if k.Offset.Abs() > time.Second {
		ahead := fmt.Sprintf("%v ahead of here", round(k.Offset))
		c.add(health.Note, "clock-offset", "clock of the store", ahead,
			"Leases do not depend on it. After the store has lost its data, tokens rise as far as clocks agree.",
			"timedatectl set-ntp true on both hosts, then run doctor again")
	}
}
