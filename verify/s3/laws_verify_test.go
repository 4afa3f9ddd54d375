//go:build verify

package s3

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// servers are started for one test each.
var servers = map[string]func(t *testing.T) string{"gofakes3": fakeS3, "versitygw": versityGW}

func TestLawsOnServers(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			drivertest.Run(t, views(url),
				drivertest.ExpiryLag(late), drivertest.Polls())
		})
	}
}

func TestAnswersAreThoseOfTheModelOnServers(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			drivertest.Model(t, views(start(t)), steps.Seeds(200)...)
		})
	}
}

// Connections are cut before, between and after the GET and the PUT of each step.
//
//verify:fault S3 | connections are cut again and again
func TestConnectionsAreCut(t *testing.T) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			proxy, err := faultproxy.Listen(strings.TrimPrefix(url, "http://"), faultproxy.Framer{})
			steps.Must(t, err)
			defer proxy.Close()
			var inside, last, grants atomic.Int64
			var all sync.WaitGroup
			stop := make(chan struct{})
			for range 3 {
				c, err := fencelock.New(views("http://"+proxy.Addr())(t), nil)
				steps.Must(t, err)
				defer c.Close()
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						lease, err := c.Lock(t.Context(), "k")
						if err != nil {
							continue
						}
						if inside.Add(1) > 1 {
							t.Error("two are inside")
						}
						if token := int64(lease.Token()); last.Swap(token) >= token {
							t.Errorf("the token %d does not rise", token)
						}
						grants.Add(1)
						inside.Add(-1)
						_ = lease.Release(t.Context())
					}
				})
			}
			for grants.Load() < 40 && !t.Failed() {
				proxy.Cut()
				time.Sleep(rand.N(20 * time.Millisecond)) // real time: the moment of the cut is random
			}
			close(stop)
			all.Wait()
			steps.Within(t, time.Minute, steps.Await(t, views(url)(t), steps.Enter(t, views(url)(t), steps.Claim("k"))))
		})
	}
}
