package reports

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// A URL names a replica whose replica-read-only is no. It takes writes, and what it grants its
// master knows nothing of.
func TestReplicaThatTakesWritesGrantsNothing(t *testing.T) {
	master := testserver.Redis(t, testserver.Config("repl-diskless-sync-delay 0"))
	replica := testserver.Redis(t, testserver.Config("replica-read-only no"))
	open := func(s *testserver.Server) *fencelock.Client {
		opened, err := storeurl.Open(t.Context(), s.URL())
		must(t, err)
		t.Cleanup(opened.Close)
		c := testclient.New(t, opened.Backend, nil)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	must(t, replica.Follow(master.Addr()))
	opened, err := storeurl.Open(t.Context(), replica.URL())
	must(t, err)
	defer opened.Close()
	if err := opened.Ping(t.Context()); !errors.As(err, new(*storeurl.ConfigError)) {
		t.Errorf("the command says %v; want a ConfigError", err)
	}
	c := open(replica)
	if l, err := c.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrUnavailable) {
		second, failed := open(master).TryLock(t.Context(), "job")
		t.Fatalf("the replica granted %v, %v; want ErrUnavailable. Its master granted %v, %v", l, err, second, failed)
	}
	must(t, steps.ErrOf(replica.Ask("REPLICAOF", "NO", "ONE")))
	testserver.Eventually(t, 30*time.Second, "the replica is a master, and grants", func() bool {
		l, err := c.TryLock(t.Context(), "other")
		return err == nil && l.Release(t.Context()) == nil
	})
}
