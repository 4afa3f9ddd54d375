package otelfence_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/otelfence"
)

var must = steps.Must

// process is a program with the OpenTelemetry SDK and a Client.
type process struct {
	*fencelock.Client
	t       *testing.T
	spans   *tracetest.InMemoryExporter
	tracing *sdk.TracerProvider
	reader  *metric.ManualReader
	inst    *otelfence.Instrumentation
}

func newProcess(t *testing.T, store *memlock.Store, name string, opts ...otelfence.Option) *process {
	t.Helper()
	p := &process{t: t, spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	p.tracing = sdk.NewTracerProvider(sdk.WithSyncer(p.spans))
	meters := metric.NewMeterProvider(metric.WithReader(p.reader))
	inst, err := otelfence.New(slices.Concat(opts, []otelfence.Option{
		otelfence.WithTracerProvider(p.tracing), otelfence.WithMeterProvider(meters),
	})...)
	must(t, err)
	p.inst = inst
	p.Client = p.client(store, name)
	return p
}

func (p *process) client(store *memlock.Store, name string) *fencelock.Client {
	c := testclient.New(p.t, store, &fencelock.Options{
		Owner: name, TTL: 30 * time.Second, OnEvent: p.inst.OnEvent(), Trace: otelfence.Traceparent,
	})
	p.t.Cleanup(func() { c.Close() })
	return c
}

// job holds key for d, under a span of its own.
func (p *process) job(key string, d time.Duration) {
	ctx, span := p.tracing.Tracer("test").Start(context.Background(), "job")
	defer span.End()
	err := p.Do(ctx, key, func(context.Context, *fencelock.Lease) error {
		time.Sleep(d)
		return nil
	})
	steps.OK(p.t, err)
}

// span returns the only span with the name.
func (p *process) span(name string) tracetest.SpanStub {
	p.t.Helper()
	synctest.Wait()
	var found []tracetest.SpanStub
	for _, s := range p.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		p.t.Fatalf("%d spans %q among %d", len(found), name, len(p.spans.GetSpans()))
	}
	return found[0]
}

// has checks an attribute.
func has(t *testing.T, attributes []attribute.KeyValue, key string, want any) {
	t.Helper()
	for _, a := range attributes {
		if string(a.Key) == key {
			if a.Value.AsInterface() != want {
				t.Errorf("%s is %v, want %v", key, a.Value.AsInterface(), want)
			}
			return
		}
	}
	t.Errorf("%s is not among %v", key, attributes)
}

// Three processes on one key: each waits and holds under its own span, and each that waited
// has a link to the span of the one in its way.
func TestWaiterIsLinkedToWhoeverWasInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		begun := time.Now()
		var all []*process
		for _, name := range []string{"web-1", "web-2", "web-3"} {
			p := newProcess(t, store, name)
			all = append(all, p)
			go p.job("orders/42", 10*time.Second)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		first := all[0].span("job")
		for i, p := range all {
			job, wait, hold := p.span("job"), p.span("fencelock wait"), p.span("fencelock hold")
			for _, s := range []tracetest.SpanStub{wait, hold} {
				if s.Parent.SpanID() != job.SpanContext.SpanID() || s.SpanContext.TraceID() != job.SpanContext.TraceID() {
					t.Errorf("%s of process %d is no child of its job", s.Name, i)
				}
				has(t, s.Attributes, "fencelock.key", "orders/42")
				has(t, s.Attributes, "fencelock.kind", "exclusive")
			}
			called, granted := begun.Add(time.Duration(i)*time.Second), begun.Add(time.Duration(10*i)*time.Second)
			if !wait.StartTime.Equal(called) || !wait.EndTime.Equal(granted) ||
				!hold.StartTime.Equal(granted) || !hold.EndTime.Equal(granted.Add(10*time.Second)) {
				t.Errorf("process %d waits %v to %v and holds %v to %v", i,
					wait.StartTime.Sub(begun), wait.EndTime.Sub(begun), hold.StartTime.Sub(begun), hold.EndTime.Sub(begun))
			}
			has(t, wait.Attributes, "fencelock.result", "acquired")
			has(t, hold.Attributes, "fencelock.result", "released")
			if i == 0 {
				if len(wait.Links) != 0 {
					t.Errorf("nobody was in the way of the first: %+v", wait.Links)
				}
				continue
			}
			checkLink(t, wait, first)
		}
	})
}

// checkLink checks that a wait is linked to the job that was in its way, in another process.
func checkLink(t *testing.T, wait, first tracetest.SpanStub) {
	if len(wait.Links) != 1 {
		t.Fatalf("a wait has %d links", len(wait.Links))
	}
	link := wait.Links[0]
	if link.SpanContext.SpanID() != first.SpanContext.SpanID() || link.SpanContext.TraceID() != first.SpanContext.TraceID() ||
		!link.SpanContext.IsSampled() {
		t.Errorf("a wait is linked to %+v", link.SpanContext)
	}
	has(t, link.Attributes, "fencelock.owner", "web-1")
	if wait.SpanContext.TraceID() == first.SpanContext.TraceID() {
		t.Error("the traces of two processes are one")
	}
}

// Inside a process the link goes to the goroutine in the way.
func TestLinkInsideAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, memlock.New(), "web-1")
		go p.job("k", 10*time.Second)
		time.Sleep(time.Second)
		p.job("k", time.Second)
		synctest.Wait()
		var job tracetest.SpanStub // that of the first job
		for _, s := range p.spans.GetSpans() {
			if s.Name == "job" && (job.Name == "" || s.StartTime.Before(job.StartTime)) {
				job = s
			}
		}
		links := 0
		for _, s := range p.spans.GetSpans() {
			for _, l := range s.Links {
				links++
				steps.Same(t, "linked to", l.SpanContext.SpanID(), job.SpanContext.SpanID())
				has(t, s.Attributes, "fencelock.handoff", true)
			}
		}
		steps.Same(t, "links", links, 1)
	})
}

// A lost lease is a span with an error, and tells of its risks.
func TestSpanOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, memlock.New(), "web-1")
		l, err := p.Lock(context.Background(), "k", fencelock.Progress(20*time.Second))
		must(t, err)
		<-l.Context().Done()
		s := p.span("fencelock hold")
		if s.Status.Code != codes.Error || !strings.Contains(s.Status.Description, "made no progress") || s.Parent.IsValid() {
			t.Errorf("the span has %+v, parent %v", s.Status, s.Parent)
		}
		has(t, s.Attributes, "fencelock.result", "lost")
		has(t, s.Attributes, "fencelock.cause", "stalled")
		if len(s.Events) != 1 || s.Events[0].Name != "at risk" || s.Events[0].Time.Sub(s.StartTime) != 20*time.Second {
			t.Errorf("the span has the events %+v", s.Events)
		}
		has(t, s.Events[0].Attributes, "fencelock.cause", "stalled")

		busy, err := p.Lock(context.Background(), "busy", fencelock.TTL(-1))
		if err == nil {
			t.Errorf("granted: %v", busy)
		}
		synctest.Wait()
		spans := p.spans.GetSpans()
		last := spans[len(spans)-1]
		if last.Name != "fencelock wait" || last.Status.Code != codes.Error {
			t.Errorf("a refused call has the span %+v", last)
		}
		has(t, last.Attributes, "fencelock.result", "invalid")
	})
}

// values returns the sums, and of histograms count and sum, by name and attributes.
func (p *process) values() map[string]float64 {
	p.t.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	must(p.t, p.reader.Collect(context.Background(), &all))
	found := map[string]float64{}
	series := func(name string, a attribute.Set) string {
		text := strings.ReplaceAll(a.Encoded(attribute.DefaultEncoder()), "fencelock.", "")
		return strings.TrimPrefix(name, "fencelock.") + "{" + text + "}"
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Description == "" || m.Unit == "" {
				p.t.Errorf("%s has the unit %q and the description %q", m.Name, m.Unit, m.Description)
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, point := range d.DataPoints {
					found[series(m.Name, point.Attributes)] = float64(point.Value)
				}
			case metricdata.Gauge[float64]:
				for _, point := range d.DataPoints {
					found[series(m.Name, point.Attributes)] = point.Value
				}
			case metricdata.Histogram[float64]:
				for _, point := range d.DataPoints {
					found[series(m.Name, point.Attributes)+" sum"] = point.Sum
				}
			case metricdata.Histogram[int64]:
				for _, point := range d.DataPoints {
					found[series(m.Name, point.Attributes)+" sum"] = float64(point.Sum)
				}
			default:
				p.t.Errorf("%s has %T", m.Name, d)
			}
		}
	}
	return found
}

func (p *process) want(want map[string]float64) {
	p.t.Helper()
	got := p.values()
	for series, value := range want {
		if v, ok := got[series]; !ok || v < value-.1 || v > value+.1 {
			p.t.Errorf("%s is %v (there: %v), want %v", series, v, ok, value)
		}
	}
	if p.t.Failed() {
		for series, v := range got {
			p.t.Logf("%s %v", series, v)
		}
	}
}

func TestLifeOfALockInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		p := newProcess(t, store, "web-1")
		go p.job("k", 25*time.Second)
		time.Sleep(5 * time.Second)
		other := p.client(store, "another Client of the process")
		l, err := other.RLock(context.Background(), "other")
		must(t, err)
		go p.job("k", 10*time.Second)
		time.Sleep(18 * time.Second)
		p.want(map[string]float64{
			"held{kind=exclusive}":           1,
			"held{kind=shared}":              1,
			"held{kind=permits}":             0,
			"hold.oldest{kind=exclusive}":    23,
			"hold.oldest{kind=shared}":       18,
			"waiting{kind=exclusive}":        1,
			"wait.oldest{kind=exclusive}":    18,
			"renewals{kind=exclusive}":       2,
			"lease.left{kind=exclusive} sum": 2 * 19.7,
			"line.ahead{kind=exclusive} sum": 1,
		})
		must(t, l.Release(context.Background()))
		time.Sleep(time.Minute)
		l, err = p.Lock(context.Background(), "k")
		must(t, err)
		if _, err := other.TryLock(context.Background(), "k"); err == nil {
			t.Error("granted")
		}
		how := fencelock.Break{Reason: "test", Notice: 10 * time.Second}
		must(t, testclient.New(t, store, nil).Break(context.Background(), "k", l.Token(), how))
		time.Sleep(time.Minute)
		p.want(map[string]float64{
			"held{kind=exclusive}":                                  0,
			"waiting{kind=exclusive}":                               0,
			"handoffs{kind=exclusive}":                              1,
			"revocations{kind=exclusive}":                           1,
			"losses{cause=broken,kind=exclusive}":                   1,
			"hold.duration{kind=exclusive,result=released} sum":     35,
			"wait.duration{kind=exclusive,result=acquired} sum":     20,
			"wait.duration{kind=exclusive,result=not_acquired} sum": 0,
		})
	})
}

func TestLockIsAnAttributeByAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, memlock.New(), "web-1", otelfence.WithLock(func(key string) string {
			prefix, _, _ := strings.Cut(key, "/")
			return prefix
		}))
		go p.job("orders/42", time.Minute)
		time.Sleep(time.Second)
		p.want(map[string]float64{"held{kind=exclusive,lock=orders}": 1, "wait.duration{kind=exclusive,lock=orders,result=acquired} sum": 0})
		time.Sleep(time.Hour)
	})
}

func TestTraceparent(t *testing.T) {
	steps.Same(t, "without a span the header", otelfence.Traceparent(context.Background()), "")
	ctx, span := sdk.NewTracerProvider().Tracer("test").Start(context.Background(), "job")
	defer span.End()
	s := otelfence.Traceparent(ctx)
	if want := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"; s != want {
		t.Errorf("it is %q, want %q", s, want)
	}
}

// An OnEvent that was too slow has missed events, so nobody knows what is open. Any event may be the one that says so.
func TestDroppedEventsCloseWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, memlock.New(), "web-1")
		on := p.inst.OnEvent()
		on(fencelock.Event{Type: fencelock.EventWaiting, Key: "k", Standing: held(0), HeldBy: &fencelock.HeldError{}, Wait: 1, Time: time.Now()})
		on(fencelock.Event{Type: fencelock.EventAcquired, Key: "k", Standing: held(1), Time: time.Now()})
		p.want(map[string]float64{"held{kind=exclusive}": 1, "waiting{kind=exclusive}": 1})
		on(fencelock.Event{Type: fencelock.EventAcquired, Key: "k", Standing: held(2), Time: time.Now(), Dropped: 7})
		p.want(map[string]float64{"held{kind=exclusive}": 1, "waiting{kind=exclusive}": 0, "events.dropped{}": 7})
		on(fencelock.Event{Type: fencelock.EventWarning, Key: "k", Time: time.Now(), Dropped: 1})
		p.want(map[string]float64{"events.dropped{}": 8})
	})
}

// What was noted of a holding goes with its span.
func TestRisksEndWithTheirHolding(t *testing.T) {
	p := newProcess(t, memlock.New(), "web-1")
	on := p.inst.OnEvent()
	e := fencelock.Event{Type: fencelock.EventAtRisk, Key: "k", Standing: held(1), Time: time.Now()}
	for range 20 {
		on(e)
	}
	e.Type = fencelock.EventReleased
	on(e)
	on(e)
	spans := p.spans.GetSpans()
	if len(spans) != 2 || len(spans[0].Events) != 16 || len(spans[1].Events) != 0 {
		t.Errorf("the spans are %+v", spans)
	}
}

// held is an exclusive claim.
func held(token fence.Token) fencelock.Standing {
	return fencelock.Standing{Kind: "exclusive", Token: token}
}
