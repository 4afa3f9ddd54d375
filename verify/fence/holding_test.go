package fence_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
)

// trueForTheHolderOnly wants the condition that holding returns to be true for as long as the
// claim is in the store, and never again. Both backends are on the same store.
func trueForTheHolderOnly(t *testing.T, b, other driver.Backend,
	holding func(key string, tok fence.Token) (holds func() bool, err error)) {
	t.Helper()
	client, waiter := testclient.New(t, b, nil), testclient.New(t, other, nil)
	defer client.Close()
	defer waiter.Close()
	for _, end := range []string{"released", "broken"} {
		key := "a/" + end
		first, err := client.Lock(t.Context(), key)
		steps.Must(t, err)
		holds, err := holding(key, first.Token())
		if err != nil || !holds() {
			t.Fatalf("%s: the holder does not hold: %v", key, err)
		}
		next := make(chan *fencelock.Lease, 1)
		go func() {
			l, err := waiter.Lock(context.Background(), key)
			steps.OK(t, err)
			next <- l
		}()
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			l, err := client.Line(t.Context(), key)
			steps.Must(t, err)
			if len(l.Claims) == 2 {
				break
			}
		}
		if !holds() {
			t.Errorf("%s: the holder does not hold while another waits", key)
		}
		if end == "released" {
			err = first.Release(t.Context())
		} else {
			err = client.Break(t.Context(), key, first.Token(), fencelock.Break{Reason: "it hangs"})
		}
		steps.Must(t, err)
		if holds() {
			t.Errorf("%s: it still holds", key)
		}
		steps.Is(t, key, second(holding(key, first.Token())), fence.ErrStale)
		second := <-next
		if too, err := holding(key, second.Token()); err != nil || !too() || holds() {
			t.Errorf("%s: the second holder: %v", key, err)
		}
		steps.OK(t, second.Release(t.Context()))
	}
	steps.Is(t, "holding", second(holding("nobody", 7)), fence.ErrStale)
	steps.Is(t, "holding", second(holding("a", 0)), fence.ErrNoToken)
}
