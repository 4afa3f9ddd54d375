package otelfence_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/otelfence"
)

// Spans and metrics of a Client. Without options they go to the global providers.
func ExampleNew() {
	spans := tracetest.NewInMemoryExporter()
	tracing := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	instrumentation, err := otelfence.New(otelfence.WithTracerProvider(tracing))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := fencelock.New(memlock.New(), &fencelock.Options{
		OnEvent: instrumentation.OnEvent(),
		Trace:   otelfence.Traceparent, // so that a wait is linked to the span of the holder
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, job := tracing.Tracer("example").Start(context.Background(), "job")
	err = locks.Do(ctx, "orders/42", func(context.Context, *fencelock.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	job.End()
	locks.Close() // and all events are recorded
	for _, s := range spans.GetSpans() {
		if s.Parent.IsValid() {
			fmt.Println(s.Name)
		}
	}
	// Output:
	// fencelock wait
	// fencelock hold
}
