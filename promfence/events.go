package promfence

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/observe"
)

// Option changes what OnEvent measures.
type Option struct{ set func(*config) }

type config struct {
	lock       func(key string) string
	wait, hold []float64
}

// Lock adds the label lock to all metrics. f returns its value for a key. It must return
// few different values, for example the part before a number, because each is a time
// series of its own.
func Lock(f func(key string) string) Option {
	return Option{func(c *config) { c.lock = f }}
}

// WaitBuckets sets the upper bounds of fencelock_wait_seconds; by default 1 ms to 5
// minutes.
func WaitBuckets(seconds ...float64) Option {
	return Option{func(c *config) { c.wait = seconds }}
}

// HoldBuckets sets the upper bounds of fencelock_hold_seconds; by default 1 ms to 1 day.
func HoldBuckets(seconds ...float64) Option {
	return Option{func(c *config) { c.hold = seconds }}
}

// OnEvent registers the metrics with reg, unless they are registered, and returns the
// Options.OnEvent of one Client. The error is that of reg, for example because the
// metrics are registered with other labels.
func OnEvent(reg prometheus.Registerer, opts ...Option) (func(fencelock.Event), error) {
	c := config{
		wait: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		hold: []float64{.001, .01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600},
	}
	for _, o := range opts {
		if o.set != nil {
			o.set(&c)
		}
	}
	m := newMetrics(&c)
	err := reg.Register(m)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		existing, ok := already.ExistingCollector.(*metrics)
		if ok {
			m, err = existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("promfence: %w", err)
	}
	return m.client(c.lock).on, nil
}

// client measures one Client.
type client struct {
	m    *metrics
	lock observe.Labeler
	open observe.Open
}

// values are the values of the labels, and of the others that a metric has.
func (m *metrics) values(l observe.Labels, others ...string) []string {
	values := append(others, l.Kind)
	if m.byLock {
		values = append(values, l.Lock)
	}
	return values
}

func (m *metrics) client(lock func(key string) string) *client {
	c := &client{m: m, lock: lock}
	m.clients.Add(&c.open)
	return c
}

// on measures e. Any event may be the one that says how many were dropped.
func (c *client) on(e fencelock.Event) {
	c.m.dropped.Add(float64(c.open.Lost(e)))
	l := c.lock.Labels(e)
	switch e.Type {
	case fencelock.EventWaiting:
		c.waiting(e, l)
	case fencelock.EventAcquired:
		c.acquired(e, l)
	case fencelock.EventRefused:
		c.refused(e, l)
	case fencelock.EventRenewed:
		c.renewed(e, l)
	case fencelock.EventAtRisk:
		c.atRisk(e, l)
	case fencelock.EventLost:
		c.lost(e, l)
	case fencelock.EventReleased:
		c.released(e, l)
	case fencelock.EventRevoked:
		c.m.revocations.WithLabelValues(c.m.values(l)...).Inc()
	}
}

func (c *client) waiting(e fencelock.Event, l observe.Labels) {
	c.open.Waits(e, l)
	c.m.ahead.WithLabelValues(c.m.values(l)...).Observe(float64(e.HeldBy.Ahead))
}

func (c *client) acquired(e fencelock.Event, l observe.Labels) {
	c.open.Waited(e)
	c.open.Holds(e, l)
	c.m.wait.WithLabelValues(c.m.values(l, observe.Acquired)...).Observe(e.Took.Seconds())
	if e.Handoff {
		c.m.handoffs.WithLabelValues(c.m.values(l)...).Inc()
	}
}

func (c *client) refused(e fencelock.Event, l observe.Labels) {
	c.open.Waited(e)
	c.m.wait.WithLabelValues(c.m.values(l, observe.Refusal(e.Err))...).Observe(e.Took.Seconds())
	c.storeError(e, l)
}

func (c *client) renewed(e fencelock.Event, l observe.Labels) {
	c.m.renewals.WithLabelValues(c.m.values(l)...).Inc()
	c.m.left.WithLabelValues(c.m.values(l)...).Observe(e.Left.Seconds())
}

func (c *client) atRisk(e fencelock.Event, l observe.Labels) {
	c.m.risks.WithLabelValues(c.m.values(l, observe.Cause(e.Err))...).Inc()
	c.storeError(e, l)
}

func (c *client) lost(e fencelock.Event, l observe.Labels) {
	c.open.Held(e)
	c.m.losses.WithLabelValues(c.m.values(l, observe.Cause(e.Err))...).Inc()
	c.m.hold.WithLabelValues(c.m.values(l, observe.Lost)...).Observe(e.Took.Seconds())
}

func (c *client) released(e fencelock.Event, l observe.Labels) {
	c.open.Held(e)
	c.m.hold.WithLabelValues(c.m.values(l, observe.Release(e.Err))...).Observe(e.Took.Seconds())
	c.storeError(e, l)
}

func (c *client) storeError(e fencelock.Event, l observe.Labels) {
	if observe.StoreFailed(e.Err) {
		c.m.storeErrors.WithLabelValues(c.m.values(l)...).Inc()
	}
}
