package reports

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

var eventually = steps.Eventually

// One address leads to the master (a name, a load balancer). A failover gives it to the former
// replica, and cuts no connection: the pool is connected to a server that is a replica now.
func TestRedisFailoverWithoutACut(t *testing.T) {
	t.Parallel()
	quick := testserver.Config("repl-diskless-sync-delay 0")
	old, next := testserver.Redis(t, quick), testserver.Redis(t, quick)
	replicaOf(t, next, old)
	p := faultproxy.Start(t, old.Addr(), faultproxy.Redis)
	open := func() *fencelock.Client {
		opened, err := storeurl.Open(t.Context(), "redis://"+p.Addr())
		must(t, err)
		t.Cleanup(opened.Close)
		c := testclient.New(t, opened.Backend, &fencelock.Options{TTL: 20 * time.Second})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := open(), open()
	held, err := a.Lock(t.Context(), "held")
	must(t, err)
	wanted, err := a.Lock(t.Context(), "wanted")
	must(t, err)
	granted := make(chan error, 1)
	go func() {
		l, err := b.Lock(t.Context(), "wanted", fencelock.Wait(30*time.Second))
		if err == nil {
			err = l.Release(t.Context())
		}
		granted <- err
	}()
	eventually(t, "the wait is in line, also at the replica", func() bool {
		n, err := next.Ask("DBSIZE")
		line, _ := a.Line(t.Context(), "wanted")
		return err == nil && len(line.Claims) > 0 && !line.Claims[len(line.Claims)-1].Granted && n != "0"
	})
	_, err = old.Ask("WAIT", "1", "5000")
	must(t, err)

	p.Aim(next.Addr())
	_, err = next.Ask("REPLICAOF", "NO", "ONE")
	must(t, err)
	replicaOf(t, old, next)

	eventually(t, "the holder renews", func() bool {
		err := held.Renew(t.Context())
		if held.Err() != nil {
			t.Fatalf("the lock was lost: %v", held.Err())
		}
		return err == nil
	})
	eventually(t, "a new lock is granted", func() bool {
		l, err := a.TryLock(t.Context(), "new")
		if err == nil {
			must(t, l.Release(t.Context()))
		}
		return err == nil
	})
	must(t, wanted.Release(t.Context()))
	steps.Well(t, "the wait", <-granted)
	must(t, held.Release(t.Context()))
	if _, err := b.TryLock(t.Context(), "held"); err != nil && !errors.Is(err, fencelock.ErrNotAcquired) {
		t.Error(err)
	}
}

// replicaOf makes s a replica, and waits until it follows.
func replicaOf(t *testing.T, s, master *testserver.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	_, err := s.Ask("REPLICAOF", host, port)
	must(t, err)
	eventually(t, "the replica follows", func() bool {
		info, err := master.Ask("INFO", "replication")
		return err == nil && strings.Contains(info, "state=online")
	})
}
