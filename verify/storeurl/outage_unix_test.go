//go:build unix

package storeurl_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// TestServerThatWasAwayServesThoseWhoWait: PostgreSQL starts a process for each connection. Callers
// who give up while it hangs, and try again, must not leave it a queue of connections that nobody
// waits for any more: those who wait behind them would give up in turn.
//
//verify:fault PostgreSQL | stopped while callers give up
func TestServerThatWasAwayServesThoseWhoWait(t *testing.T) {
	server := testserver.Postgres(t, testserver.Config("log_connections = on"))
	store, err := storeurl.Open(t.Context(), server.URL())
	steps.Must(t, err)
	defer store.Close()
	steps.Must(t, store.Ping(t.Context()))
	connections := func() int { return strings.Count(server.Log(), "connection received") }
	before := connections()

	steps.Must(t, server.Pause())
	const callers, rounds, patience = 4, 20, 100 * time.Millisecond
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if err := store.Ping(ctx); err == nil {
					t.Error("a server that stands still has answered")
				}
				cancel()
			}
		})
	}
	all.Wait()
	steps.Must(t, server.Continue())

	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	if err := store.Ping(ctx); err != nil {
		t.Fatalf("the server is back: %v", err)
	}
	// The pool has two connections. Each that was open was given up, and its statement canceled over
	// another one. Two were begun instead, and those were taken over.
	if n := connections() - before; n > 6 {
		t.Errorf("%d connections for %d calls in %v", n, callers*rounds, rounds*patience)
	}
}
