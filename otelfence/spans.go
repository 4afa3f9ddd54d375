package otelfence

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/observe"
)

// The attributes of spans and metrics.
const (
	keyKey     = attribute.Key("fencelock.key")
	kindKey    = attribute.Key("fencelock.kind")
	lockKey    = attribute.Key("fencelock.lock")
	permitsKey = attribute.Key("fencelock.permits")
	tokenKey   = attribute.Key("fencelock.token")
	ownerKey   = attribute.Key("fencelock.owner")
	handoffKey = attribute.Key("fencelock.handoff")
	resultKey  = attribute.Key("fencelock.result")
	causeKey   = attribute.Key("fencelock.cause")
	leftKey    = attribute.Key("fencelock.lease.left")
)

// holding names a lock that is held.
type holding struct {
	key   string
	token fence.Token
	kind  string
}

// risk is one event AtRisk.
type risk struct {
	at    time.Time
	cause string
	left  time.Duration
}

// maxRisks is how many of them the span of a holding has at most.
const maxRisks = 16

// noteRisk keeps e for the span of the holding.
func (c *client) noteRisk(e fencelock.Event) {
	h := holding{e.Key, e.Token, e.Kind}
	if len(c.risks[h]) < maxRisks {
		c.risks[h] = append(c.risks[h], risk{e.Time, observe.Cause(e.Err), e.Left})
	}
}

// spanAttributes are those of both spans.
func spanAttributes(e fencelock.Event, result string) []attribute.KeyValue {
	a := []attribute.KeyValue{
		keyKey.String(strings.ToValidUTF8(e.Key, "\ufffd")), kindKey.String(e.Kind), resultKey.String(result),
	}
	if e.Token != 0 {
		a = append(a, tokenKey.Int64(int64(e.Token)))
	}
	if e.Permits != 0 {
		a = append(a, permitsKey.Int64(e.Permits))
	}
	return a
}

// waitSpan writes the span of a call that has its answer, with a link to the span of whoever
// was in its way.
func (c *client) waitSpan(ctx context.Context, e fencelock.Event, result string) {
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(e.Time.Add(-e.Took)), trace.WithAttributes(spanAttributes(e, result)...),
	}
	if h := e.HeldBy; h != nil {
		if holder := spanOf(h.Trace); holder.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: holder, Attributes: []attribute.KeyValue{
				ownerKey.String(h.Owner), tokenKey.Int64(int64(h.Token)),
			}}))
		}
	}
	_, span := c.i.tracer.Start(ctx, "fencelock wait", opts...)
	if e.Handoff {
		span.SetAttributes(handoffKey.Bool(true))
	}
	if result == "unavailable" || result == "invalid" {
		fails(span, e)
	}
	span.End(trace.WithTimestamp(e.Time))
}

// holdSpan writes the span of a holding that has ended.
func (c *client) holdSpan(ctx context.Context, e fencelock.Event, result string) {
	h := holding{e.Key, e.Token, e.Kind}
	risks := c.risks[h]
	delete(c.risks, h)
	_, span := c.i.tracer.Start(ctx, "fencelock hold",
		trace.WithTimestamp(e.Time.Add(-e.Took)), trace.WithAttributes(spanAttributes(e, result)...))
	for _, r := range risks {
		span.AddEvent("at risk", trace.WithTimestamp(r.at),
			trace.WithAttributes(causeKey.String(r.cause), leftKey.Float64(r.left.Seconds())))
	}
	if result == observe.Lost {
		span.SetAttributes(causeKey.String(observe.Cause(e.Err)))
		fails(span, e)
	}
	span.End(trace.WithTimestamp(e.Time))
}

func fails(span trace.Span, e fencelock.Event) {
	span.SetStatus(codes.Error, e.Err.Error())
}
