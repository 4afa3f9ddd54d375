// Package promfence gives a Client of fencelock metrics for Prometheus.
//
//	onEvent, err := promfence.OnEvent(prometheus.DefaultRegisterer)
//	locks, err := fencelock.New(backend, &fencelock.Options{OnEvent: onEvent})
//
// Each Client needs a call of OnEvent of its own. Several Clients of one program may use the
// same registry, and their metrics add up. To do more with an event, call both from a function
// of your own.
//
// # Metrics
//
//   - fencelock_wait_seconds{kind,result}: how long calls waited for their answer. The result
//     is acquired, not_acquired, unavailable, canceled, closed or invalid.
//   - fencelock_hold_seconds{kind,result}: how long locks were held: released, detached, lost.
//   - fencelock_line_ahead{kind}: claims, or calls of the process, before a call that waits.
//   - fencelock_renewals_total{kind} and fencelock_lease_left_seconds{kind}: renewals, and what
//     was left of the lease before each.
//   - fencelock_at_risk_total{kind,cause}: leases at risk: store, stalled, or late.
//   - fencelock_losses_total{kind,cause}: expired, stalled, broken, max_hold, closed.
//   - fencelock_handoffs_total{kind}: grants passed on inside the process.
//   - fencelock_revocations_total{kind}: leases whose holder has heard of a Break with
//     notice.
//   - fencelock_store_errors_total{kind}: calls, renewals and releases without an answer.
//   - fencelock_held{kind}, fencelock_waiting{kind}: locks held and calls that wait now.
//   - fencelock_oldest_hold_seconds{kind}, fencelock_oldest_wait_seconds{kind}: since when.
//   - fencelock_events_dropped_total: events that were lost because OnEvent was too slow.
//
// The kind is exclusive, shared or permits. A key is not a label, because there may be
// millions: with the option [Lock], a function returns a label for it.
package promfence
