package reports

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// A try finds the lock held, and its connection is reset on the way. go-redis sends the try
// again at once. The first copy of the request arrives when the holder has released. Without a
// tombstone it takes the lock for a client that has been refused, and keeps it for a TTL.
func TestATryThatWasRefusedHoldsNothingLater(t *testing.T) {
	s := testserver.Redis(t)
	p := faultproxy.Start(t, s.Addr(), faultproxy.Redis)
	open := func(addr string) *fencelock.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { rdb.Close() })
		c, err := fencelock.New(redislock.New(rdb, nil), nil)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	holder, other := open(s.Addr()), open(p.Addr())
	held, err := holder.Lock(t.Context(), "job")
	must(t, err)
	evals, late := 0, make(chan struct{})
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if name := r.Args()[0]; name != "evalsha" && name != "eval" {
			return faultproxy.Pass
		}
		if evals++; evals > 1 {
			return faultproxy.Pass
		}
		r.AfterCut = func() { close(late) } // once the server has answered what was late
		return faultproxy.LateRequest
	})
	if _, err := other.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Fatalf("the try answered %v; want ErrNotAcquired", err)
	}
	must(t, held.Release(t.Context()))
	p.Resume()
	<-late
	again, err := holder.TryLock(t.Context(), "job")
	if err != nil {
		t.Fatalf("nobody holds the lock, and a try answered %v", err)
	}
	steps.OK(t, again.Release(t.Context()))
}
