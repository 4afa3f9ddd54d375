package main

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// With Listen, each hand-over is told to the program that waits. Without, it asks, and gets the lock too.
func TestProgramThatWaitsIsWokenByNotify(t *testing.T) {
	server := testserver.Postgres(t)
	var told atomic.Int64
	counted := func(ctx context.Context, channel string, notify func()) error {
		return listen(server.URL())(ctx, channel, func() {
			told.Add(1)
			notify()
		})
	}
	const n = 7
	if _, err := handOvers(t.Context(), server.URL(), counted, n); err != nil {
		t.Fatal(err)
	}
	if told.Load() <= 2 { // each of the two is told once when it begins to listen
		t.Errorf("of %d hand-overs, and two beginnings, programs were told %d times", n, told.Load())
	}
	if _, err := handOvers(t.Context(), server.URL(), nil, n); err != nil {
		t.Fatal(err)
	}
}
