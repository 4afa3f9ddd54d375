package observe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/promfence"
	"github.com/fencelock/fencelock/redislock"
)

// workerStore names the store of a worker. It makes the test binary a worker.
const workerStore = "FENCELOCK_OBSERVE_STORE"

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

// work is a program that takes locks and has metrics. It prints the address of its metrics
// and then does what it reads: "lock KEY" begins to wait, "release KEY" gives the lock back.
func work(url string) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	hooks, err := promfence.Hooks(prometheus.DefaultRegisterer)
	if err != nil {
		return err
	}
	locks, err := fencelock.New(redislock.New(redis.NewClient(opts), nil), &fencelock.Options{TTL: 2 * time.Second, Hooks: hooks})
	if err != nil {
		return err
	}
	defer locks.Close()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.Handler())
	go func() { _ = http.Serve(web, nil) }()
	fmt.Println(web.Addr())

	release := map[string]chan struct{}{}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		order, key, _ := strings.Cut(orders.Text(), " ")
		if order == "release" {
			close(release[key])
			continue
		}
		enough := make(chan struct{})
		release[key] = enough
		go func() {
			_ = locks.Do(context.Background(), key, func(ctx context.Context, _ *fencelock.Lease) error {
				select {
				case <-enough:
				case <-ctx.Done():
				}
				return nil
			})
		}()
	}
	return nil
}

// worker is a process that takes locks.
type worker struct {
	t      *testing.T
	addr   string // of its metrics
	orders io.Writer
}

// startWorker starts a worker, which ends with the test.
func startWorker(t *testing.T, store string) *worker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerStore+"="+store)
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = orders.Close() // it ends then
		if err := cmd.Wait(); err != nil {
			t.Errorf("a worker ended with %v", err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return &worker{t: t, addr: strings.TrimSpace(addr), orders: orders}
}

func (w *worker) order(text string) {
	w.t.Helper()
	_, err := fmt.Fprintln(w.orders, text)
	must(w.t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
