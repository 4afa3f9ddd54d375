package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/otelfence"
	"github.com/fencelock/fencelock/promfence"
	"github.com/fencelock/fencelock/redislock"
)

var must = steps.Must

// workerStore names the store of a worker. It makes the test binary a worker.
const workerStore = "FENCELOCK_OBSERVE_STORE"

// workerName is its name.
const workerName = "FENCELOCK_OBSERVE_NAME"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerStore); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a program that takes locks and has metrics and traces. It prints the address of its
// metrics and then does what it reads: "lock KEY" begins to wait, "release KEY" gives the lock
// back. At the end of its input it prints its spans.
func work(url string) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	metrics, err := promfence.OnEvent(prometheus.DefaultRegisterer)
	if err != nil {
		return err
	}
	spans := tracetest.NewInMemoryExporter()
	tracing := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	traces, err := otelfence.New(otelfence.WithTracerProvider(tracing))
	if err != nil {
		return err
	}
	spanned := traces.OnEvent()
	locks, err := fencelock.New(redislock.New(redis.NewClient(opts), nil), &fencelock.Options{
		Owner: os.Getenv(workerName), TTL: 6 * time.Second,
		OnEvent: func(e fencelock.Event) { metrics(e); spanned(e) }, Trace: otelfence.Traceparent,
	})
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.Handler())
	go func() { _ = http.Serve(web, nil) }()
	fmt.Println(web.Addr())

	release := map[string]chan struct{}{}
	var jobs sync.WaitGroup
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		order, key, _ := strings.Cut(orders.Text(), " ")
		if order == "release" {
			close(release[key])
			continue
		}
		enough := make(chan struct{})
		release[key] = enough
		jobs.Go(func() {
			ctx, job := tracing.Tracer("worker").Start(context.Background(), "job")
			defer job.End()
			_ = locks.Do(ctx, key, func(ctx context.Context, _ *fencelock.Lease) error {
				select {
				case <-enough:
				case <-ctx.Done():
				}
				return nil
			})
		})
	}
	jobs.Wait()
	if err := locks.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(spansOf(spans.GetSpans()))
}

// span is what the tests read of a span.
type span struct {
	Name       string
	ID, Parent string
	Links      []string // IDs of spans
	Start, End time.Time
}

func spansOf(stubs tracetest.SpanStubs) (spans []span) {
	for _, s := range stubs {
		next := span{Name: s.Name, ID: s.SpanContext.SpanID().String(), Start: s.StartTime, End: s.EndTime}
		if s.Parent.IsValid() {
			next.Parent = s.Parent.SpanID().String()
		}
		for _, l := range s.Links {
			next.Links = append(next.Links, l.SpanContext.SpanID().String())
		}
		spans = append(spans, next)
	}
	return spans
}

// worker is a process that takes locks.
type worker struct {
	t      *testing.T
	name   string
	addr   string // of its metrics
	orders io.WriteCloser
	out    *bufio.Reader
}

// startWorker starts a worker, which ends with the test.
func startWorker(t *testing.T, store, name string) *worker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerStore+"="+store, workerName+"="+name)
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = orders.Close() // it ends then
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	})
	w := &worker{t: t, name: name, orders: orders, out: bufio.NewReader(out)}
	addr, err := w.out.ReadString('\n')
	must(t, err)
	w.addr = strings.TrimSpace(addr)
	return w
}

func (w *worker) order(text string) {
	w.t.Helper()
	_, err := fmt.Fprintln(w.orders, text)
	must(w.t, err)
}

// end ends the worker and returns its spans by their names.
func (w *worker) end() map[string]span {
	w.t.Helper()
	must(w.t, w.orders.Close())
	var spans []span
	must(w.t, json.NewDecoder(w.out).Decode(&spans))
	byName := map[string]span{}
	for _, s := range spans {
		byName[s.Name] = s
	}
	return byName
}
