// Package otelfence gives a Client of fencelock metrics and traces of OpenTelemetry.
//
//	instrumentation, err := otelfence.New()
//	locks, err := fencelock.New(backend, &fencelock.Options{
//		OnEvent: instrumentation.OnEvent(),
//		Trace: otelfence.Traceparent,
//	})
//
// One Instrumentation serves a program; each Client needs a call of OnEvent of its own. To do
// more with an event, call both from a function of your own.
//
// # Traces
//
// Each call that wants a lock has a span "fencelock wait", and each holding a span
// "fencelock hold". Both are children of the span in the context of the call, and are
// written when they end. With Options.Trace, the claim carries the trace context of the
// caller, so the span of a call that waited has a link to the span of the holder that was
// in its way, in any process: the span that the holder had open when it asked for the
// lock.
//
// Spans have the attributes fencelock.key, fencelock.kind, fencelock.permits,
// fencelock.token and fencelock.result. A wait has fencelock.handoff. Its link has fencelock.owner and
// fencelock.token of the holder. A hold has an event for each time it came to be at risk.
//
// # Metrics
//
//   - fencelock.wait.duration and fencelock.hold.duration, in seconds, by fencelock.result.
//     That of a wait is acquired, not_acquired, unavailable, canceled, closed or invalid; that
//     of a hold is released, detached or lost.
//   - fencelock.line.ahead: claims, or calls of the process, before a call that waits.
//   - fencelock.renewals, and fencelock.lease.left: seconds left of the lease before each.
//   - fencelock.risks by fencelock.cause: store, stalled, or late.
//   - fencelock.losses by fencelock.cause: expired, stalled, broken, max_hold, closed.
//   - fencelock.revocations: holders that have heard of a Break with notice.
//   - fencelock.handoffs: grants passed on inside the process.
//   - fencelock.store.errors: calls, renewals and releases without an answer.
//   - fencelock.held, fencelock.waiting: locks held and calls that wait now.
//   - fencelock.hold.oldest, fencelock.wait.oldest: since how many seconds.
//   - fencelock.events.dropped: events that were lost because OnEvent was too slow.
//
// All but the last have fencelock.kind: exclusive, shared or permits. A key is not an
// attribute of a metric, because there may be millions: with [WithLock], a function
// returns fencelock.lock for it.
package otelfence
