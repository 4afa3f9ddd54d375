package promfence_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/promfence"
)

// Metrics of a Client, with the part of the key before the slash as the label lock.
func ExampleOnEvent() {
	reg := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	onEvent, err := promfence.OnEvent(reg, promfence.Lock(func(key string) string {
		prefix, _, _ := strings.Cut(key, "/")
		return prefix
	}))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := fencelock.New(memlock.New(), &fencelock.Options{OnEvent: onEvent})
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(context.Background(), "orders/42", func(context.Context, *fencelock.Lease) error {
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	locks.Close() // and all events are counted
	n, err := testutil.GatherAndCount(reg, "fencelock_wait_seconds", "fencelock_hold_seconds")
	fmt.Println(n, err)
	// Output: 2 <nil>
}
