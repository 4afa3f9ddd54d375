package promfence

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/internal/observe"
)

// metrics is what one registry has, for all Clients that use it. It is a Collector.
type metrics struct {
	byLock bool // they have the label lock

	wait, hold, ahead, left                                     *prometheus.HistogramVec
	renewals, risks, losses, handoffs, revocations, storeErrors *prometheus.CounterVec
	dropped                                                     prometheus.Counter
	heldDesc, waitingDesc, oldestHoldDesc, oldestWaitDesc       *prometheus.Desc

	clients observe.Clients
}

func newMetrics(c *config) *metrics {
	common := []string{"kind"}
	if c.lock != nil {
		common = append(common, "lock")
	}
	with := func(label string) []string { return append([]string{label}, common...) }
	histogram := func(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, common, nil) }
	return &metrics{
		byLock: c.lock != nil,
		wait: histogram("fencelock_wait_seconds", "How long calls for a lock waited for their answer.",
			c.wait, with("result")),
		hold: histogram("fencelock_hold_seconds", "How long locks were held.", c.hold, with("result")),
		ahead: histogram("fencelock_line_ahead", "Claims, or calls of this process, before a call that begins to wait.",
			prometheus.ExponentialBuckets(1, 2, 11), common),
		left: histogram("fencelock_lease_left_seconds", "What was left of a lease as it was renewed.",
			[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 300}, common),
		renewals: counter("fencelock_renewals_total", "Renewals of leases.", common),
		risks:    counter("fencelock_at_risk_total", "Leases that came to be at risk.", with("cause")),
		losses:   counter("fencelock_losses_total", "Leases that ended before their holder did.", with("cause")),
		handoffs: counter("fencelock_handoffs_total", "Grants passed on inside this process.", common),
		revocations: counter("fencelock_revocations_total",
			"Leases whose holder has heard of a Break with notice.", common),
		storeErrors: counter("fencelock_store_errors_total",
			"Calls, renewals and releases without an answer of the store.", common),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fencelock_events_dropped_total", Help: "Events that were lost because OnEvent was too slow.",
		}),
		heldDesc:       desc("fencelock_held", "Locks that are held."),
		waitingDesc:    desc("fencelock_waiting", "Calls that wait for a lock."),
		oldestHoldDesc: desc("fencelock_oldest_hold_seconds", "How long the oldest lock is held; 0 if none is."),
		oldestWaitDesc: desc("fencelock_oldest_wait_seconds", "How long the oldest call waits; 0 if none does."),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.wait, m.hold, m.ahead, m.left, m.renewals, m.risks, m.losses, m.handoffs, m.revocations,
		m.storeErrors, m.dropped,
	}
}

// Describe is of prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.heldDesc, m.waitingDesc, m.oldestHoldDesc, m.oldestWaitDesc} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	now := time.Now()
	holds, waits := m.clients.Sums(m.byLock)
	gauges := func(sums map[observe.Labels]observe.Sum, count, age *prometheus.Desc) {
		for l, s := range sums {
			values := m.values(l)
			ch <- prometheus.MustNewConstMetric(count, prometheus.GaugeValue, float64(s.Count), values...)
			ch <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, s.Age(now).Seconds(), values...)
		}
	}
	gauges(holds, m.heldDesc, m.oldestHoldDesc)
	gauges(waits, m.waitingDesc, m.oldestWaitDesc)
}
