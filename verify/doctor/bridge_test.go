package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestBothStoresOfABridgeAreExamined: a bridge is held in both, so a bad setting of either endangers it.
func TestBothStoresOfABridgeAreExamined(t *testing.T) {
	t.Parallel()
	old, new := testserver.Redis(t, testserver.Persist(true)), testserver.Redis(t, testserver.Persist(true))
	store := open(t, "bridge:"+old.URL()+","+new.URL())
	config(t, old, "appendfsync always")
	config(t, new, "appendfsync always", "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	finds(t, store.Backend, time.Minute, "error redis-eviction")
	found := found(t, store.Backend, time.Minute)
	steps.Same(t, "it was found at", found[0].Server, "the new store (redis)")
	if text := store.Warning(t.Context()); !strings.Contains(text, "allkeys-lru") {
		t.Errorf("a command that begins warns of %q; want the eviction", text)
	}
}
