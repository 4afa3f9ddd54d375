package sql_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

// This is what no lock on an asynchronous replication can keep, and what is kept all the
// same: a standby is promoted that has not heard of a grant, since its link was cut. A
// second holder is let in beside the first, with a larger token, so a resource that compares
// tokens refuses the first; and the first is told by its next renewal. What the standby had
// heard of goes on.
func TestStaleStandbyLetsASecondHolderInAndTheFirstIsTold(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", staleStandby)
}

func staleStandby(t *testing.T) {
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	s := &store{kind: postgres, on: primary}
	link := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
	standby := testserver.PostgresStandby(t, primary, link.Addr())
	hosts, err := url.Parse(primary.URL())
	must(t, err)
	hosts.Host += "," + standby.Addr()
	q := hosts.Query()
	q.Set("target_session_attrs", "read-write")
	hosts.RawQuery = q.Encode()
	const ttl = 30 * time.Second
	client := func() *fencelock.Client {
		b := s.backendOn(t, s.openDSN(t, hosts.String()))
		c := testclient.New(t, b, &fencelock.Options{TTL: ttl})
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := client(), client()
	ctx := t.Context()
	known, err := a.Lock(ctx, "known")
	must(t, err)
	// The standby has it when it has a later write.
	run(t, s.openDSN(t, primary.URL()), "CREATE TABLE seen ()")
	read := s.openDSN(t, standby.URL())
	until(t, "the standby follows", func() bool {
		var there bool
		err := read.QueryRow("SELECT to_regclass('seen') IS NOT NULL").Scan(&there)
		return err == nil && there
	})
	link.Close()
	first, err := a.Lock(ctx, "key", fencelock.NoRenewal()) // it may not ask before there is a second
	must(t, err)
	granted := time.Now()
	must(t, primary.Kill())
	run(t, read, "SELECT pg_promote()")
	second, err := b.Lock(ctx, "key")
	must(t, err)
	if err := first.Err(); err != nil {
		t.Fatalf("the first holder was told before there was a second: %v; this test shows nothing", err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("the second holder's token is %d, the first one's %d", second.Token(), first.Token())
	}
	var resource fence.Gate
	write := func() error { return nil }
	well(t, "the resource refused the second holder", resource.Do(ctx, second.Token(), write))
	steps.Is(t, "the resource let the first holder in", resource.Do(ctx, first.Token(), write), fence.ErrStale)
	until(t, "a renewal tells the first holder", func() bool { // its connection to the primary is broken
		return errors.Is(first.Renew(ctx), fencelock.ErrLost)
	})
	<-first.Context().Done()
	if d := time.Since(granted); d > ttl {
		t.Errorf("the first holder was told %v after its grant; its lease is %v", d, ttl)
	}
	steps.Is(t, "the first holder was told", first.Err(), fencelock.ErrLost)
	steps.Is(t, "Release of the lost lock", first.Release(ctx), fencelock.ErrLost)
	for name, lease := range map[string]*fencelock.Lease{"the second holder": second,
		"who held what the standby knew of": known} {
		if err := lease.Renew(ctx); err != nil {
			t.Errorf("%s cannot renew: %v", name, err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release by %s: %v", name, err)
		}
	}
}
