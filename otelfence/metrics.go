package otelfence

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencelock/fencelock/internal/observe"
)

// metrics are the instruments of an Instrumentation, and what its Clients have open.
type metrics struct {
	byLock bool // they have fencelock.lock

	wait, hold, left                                            metric.Float64Histogram
	ahead                                                       metric.Int64Histogram
	renewals, risks, losses, handoffs, revocations, storeErrors metric.Int64Counter
	dropped                                                     metric.Int64Counter
	held, waiting                                               metric.Int64ObservableUpDownCounter
	oldestHold, oldestWait                                      metric.Float64ObservableGauge

	clients observe.Clients
}

// create makes the instruments.
func (m *metrics) create(meter metric.Meter) error {
	var errs []error
	noted := func(err error) { errs = append(errs, err) }
	seconds := func(to *metric.Float64Histogram, name, text string, bounds ...float64) {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(bounds...))
		*to = h
		noted(err)
	}
	counter := func(to *metric.Int64Counter, name, unit, text string) {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		*to = c
		noted(err)
	}
	seconds(&m.wait, "fencelock.wait.duration", "How long calls for a lock waited for their answer.",
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)
	seconds(&m.hold, "fencelock.hold.duration", "How long locks were held.",
		.001, .01, .1, 1, 10, 60, 300, 1800, 3600, 6*3600, 24*3600)
	seconds(&m.left, "fencelock.lease.left", "What was left of a lease as it was renewed.",
		.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 300)
	counter(&m.renewals, "fencelock.renewals", "{renewal}", "Renewals of leases.")
	counter(&m.risks, "fencelock.risks", "{risk}", "Leases that came to be at risk.")
	counter(&m.losses, "fencelock.losses", "{loss}", "Leases that ended before their holder did.")
	counter(&m.handoffs, "fencelock.handoffs", "{handoff}", "Grants passed on inside this process.")
	counter(&m.revocations, "fencelock.revocations", "{revocation}",
		"Leases whose holder has heard of a Break with notice.")
	counter(&m.storeErrors, "fencelock.store.errors", "{error}",
		"Calls, renewals and releases without an answer of the store.")
	counter(&m.dropped, "fencelock.events.dropped", "{event}", "Events that were lost because OnEvent was too slow.")
	var err error
	m.ahead, err = meter.Int64Histogram("fencelock.line.ahead", metric.WithUnit("{claim}"),
		metric.WithDescription("Claims, or calls of this process, before a call that begins to wait."),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
	noted(err)
	noted(m.createGauges(meter))
	return errors.Join(errs...)
}

// createGauges makes the instruments that are asked for their value.
func (m *metrics) createGauges(meter metric.Meter) error {
	var errs [5]error
	m.held, errs[0] = meter.Int64ObservableUpDownCounter("fencelock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	m.waiting, errs[1] = meter.Int64ObservableUpDownCounter("fencelock.waiting", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that wait for a lock."))
	m.oldestHold, errs[2] = meter.Float64ObservableGauge("fencelock.hold.oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest lock is held."))
	m.oldestWait, errs[3] = meter.Float64ObservableGauge("fencelock.wait.oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest call waits."))
	_, errs[4] = meter.RegisterCallback(m.observe, m.held, m.waiting, m.oldestHold, m.oldestWait)
	return errors.Join(errs[:]...)
}

// observe reports what is open.
func (m *metrics) observe(_ context.Context, o metric.Observer) error {
	now := time.Now()
	holds, waits := m.clients.Sums(m.byLock)
	report := func(sums map[observe.Labels]observe.Sum, count metric.Int64Observable, age metric.Float64Observable) {
		for l, s := range sums {
			with := metric.WithAttributes(m.attributes(l)...)
			o.ObserveInt64(count, int64(s.Count), with)
			o.ObserveFloat64(age, s.Age(now).Seconds(), with)
		}
	}
	report(holds, m.held, m.oldestHold)
	report(waits, m.waiting, m.oldestWait)
	return nil
}

// attributes are those of a metric with these labels.
func (m *metrics) attributes(l observe.Labels, others ...attribute.KeyValue) []attribute.KeyValue {
	all := append(others, kindKey.String(l.Kind))
	if m.byLock {
		all = append(all, lockKey.String(l.Lock))
	}
	return all
}

// with is the attributes of one measurement.
func (c *client) with(l observe.Labels, others ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(c.metrics.attributes(l, others...)...)
}
