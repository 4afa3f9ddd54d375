package otelfence

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/observe"
)

// scope is the name of the instrumentation.
const scope = "github.com/fencelock/fencelock/otelfence"

// Option changes what New returns.
type Option struct{ set func(*config) }

type config struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	lock    func(key string) string
}

// WithTracerProvider sends spans to p instead of otel.GetTracerProvider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return Option{func(c *config) { c.tracers = p }}
}

// WithMeterProvider sends metrics to p instead of otel.GetMeterProvider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return Option{func(c *config) { c.meters = p }}
}

// WithLock adds the attribute fencelock.lock to all metrics. f returns its value for a
// key. It must return few different values, because each is a time series of its own.
func WithLock(f func(key string) string) Option {
	return Option{func(c *config) { c.lock = f }}
}

// Instrumentation records metrics and spans of Clients. All methods may be called from
// many goroutines at once.
type Instrumentation struct {
	lock    observe.Labeler // nil without fencelock.lock
	tracer  trace.Tracer
	metrics metrics
}

// New returns an Instrumentation. One for each MeterProvider is enough: the metrics of two on
// the same one would collide. The error is that of the MeterProvider.
func New(opts ...Option) (*Instrumentation, error) {
	c := config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, o := range opts {
		if o.set != nil {
			o.set(&c)
		}
	}
	i := &Instrumentation{lock: c.lock, tracer: c.tracers.Tracer(scope)}
	i.metrics.byLock = c.lock != nil
	if err := i.metrics.create(c.meters.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otelfence: %w", err)
	}
	return i, nil
}

// OnEvent returns the Options.OnEvent of one Client.
func (i *Instrumentation) OnEvent() func(fencelock.Event) {
	c := &client{i: i, metrics: &i.metrics, risks: map[holding][]risk{}}
	i.metrics.clients.Add(&c.open)
	return c.on
}

// on measures e. Any event may be the one that says how many were dropped.
func (c *client) on(e fencelock.Event) {
	ctx, l := contextOf(e), c.i.lock.Labels(e)
	if n := c.open.Lost(e); n > 0 {
		clear(c.risks)
		c.metrics.dropped.Add(ctx, int64(n))
	}
	switch e.Type {
	case fencelock.EventWaiting:
		c.waiting(ctx, e, l)
	case fencelock.EventAcquired:
		c.acquired(ctx, e, l)
	case fencelock.EventRefused:
		c.refused(ctx, e, l)
	case fencelock.EventRenewed:
		c.renewed(ctx, e, l)
	case fencelock.EventAtRisk:
		c.atRisk(ctx, e, l)
	case fencelock.EventLost:
		c.lost(ctx, e, l)
	case fencelock.EventReleased:
		c.released(ctx, e, l)
	case fencelock.EventRevoked:
		c.metrics.revocations.Add(ctx, 1, c.with(l))
	}
}

// contextOf is the context of the call that e is about.
func contextOf(e fencelock.Event) context.Context {
	if e.Context == nil {
		return context.Background()
	}
	return e.Context
}

// Traceparent returns the W3C traceparent of the span in ctx, or "". It is for
// fencelock.Options.Trace.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// spanOf reads what Traceparent wrote.
func spanOf(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// client measures one Client. Its methods are called one at a time.
type client struct {
	i       *Instrumentation
	metrics *metrics
	open    observe.Open
	risks   map[holding][]risk // of what is held
}

func (c *client) waiting(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.open.Waits(e, l)
	c.metrics.ahead.Record(ctx, int64(e.HeldBy.Ahead), c.with(l))
}

func (c *client) acquired(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.open.Waited(e)
	c.open.Holds(e, l)
	c.metrics.wait.Record(ctx, e.Took.Seconds(), c.with(l, resultKey.String(observe.Acquired)))
	if e.Handoff {
		c.metrics.handoffs.Add(ctx, 1, c.with(l))
	}
	c.waitSpan(ctx, e, observe.Acquired)
}

func (c *client) refused(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.open.Waited(e)
	result := observe.Refusal(e.Err)
	c.metrics.wait.Record(ctx, e.Took.Seconds(), c.with(l, resultKey.String(result)))
	c.storeError(ctx, e, l)
	c.waitSpan(ctx, e, result)
}

func (c *client) renewed(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.metrics.renewals.Add(ctx, 1, c.with(l))
	c.metrics.left.Record(ctx, e.Left.Seconds(), c.with(l))
}

func (c *client) atRisk(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.metrics.risks.Add(ctx, 1, c.with(l, causeKey.String(observe.Cause(e.Err))))
	c.storeError(ctx, e, l)
	c.noteRisk(e)
}

func (c *client) lost(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.open.Held(e)
	c.metrics.losses.Add(ctx, 1, c.with(l, causeKey.String(observe.Cause(e.Err))))
	c.metrics.hold.Record(ctx, e.Took.Seconds(), c.with(l, resultKey.String(observe.Lost)))
	c.holdSpan(ctx, e, observe.Lost)
}

func (c *client) released(ctx context.Context, e fencelock.Event, l observe.Labels) {
	c.open.Held(e)
	result := observe.Release(e.Err)
	c.metrics.hold.Record(ctx, e.Took.Seconds(), c.with(l, resultKey.String(result)))
	c.storeError(ctx, e, l)
	c.holdSpan(ctx, e, result)
}

func (c *client) storeError(ctx context.Context, e fencelock.Event, l observe.Labels) {
	if observe.StoreFailed(e.Err) {
		c.metrics.storeErrors.Add(ctx, 1, c.with(l))
	}
}
