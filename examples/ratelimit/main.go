// Ratelimit calls a partner's API that takes ten requests at a time from all of our
// machines together, and answers 429 to the eleventh.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/examples/internal/story"
	"github.com/fencelock/fencelock/redislock"
)

// atOnce is what the partner allows.
const atOnce = 10

func main() {
	if err := play(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func play(args []string) error {
	addr, stop, err := story.Redis(args...)
	if err != nil {
		return err
	}
	defer stop()
	p := newPartner()
	defer p.Close()
	err = run(context.Background(), addr, p)
	fmt.Printf("%d calls, %d at a time at the most, %d refused\n", p.calls.Load(), p.most.Load(), p.refused.Load())
	return err
}

// run is three machines with twenty workers each.
func run(ctx context.Context, addr string, p *partner) error {
	errs := make(chan error, 60)
	var all sync.WaitGroup
	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		client, err := fencelock.New(redislock.New(rdb, nil), nil)
		if err != nil {
			return err
		}
		defer client.Close()
		for range 20 {
			all.Go(func() {
				for range 3 {
					if err := call(ctx, client, p.URL); err != nil {
						errs <- err
						return
					}
				}
			})
		}
	}
	all.Wait()
	close(errs)
	return <-errs
}

// call makes one request when there is room for it.
func call(ctx context.Context, client *fencelock.Client, url string) error {
	permit, err := client.Acquire(ctx, "partner", 1, atOnce)
	if err != nil {
		return err
	}
	return permit.Do(ctx, func(ctx context.Context, _ *fencelock.Lease) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("the partner says %s", answer.Status)
		}
		return err
	})
}

// partner is the other side.
type partner struct {
	*httptest.Server
	inside, most, calls, refused atomic.Int64
}

func newPartner() *partner {
	p := &partner{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := p.inside.Add(1)
		defer p.inside.Add(-1)
		p.calls.Add(1)
		for m := p.most.Load(); n > m && !p.most.CompareAndSwap(m, n); m = p.most.Load() {
		}
		if n > atOnce {
			p.refused.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(10 * time.Millisecond) // its work
	}))
	return p
}
