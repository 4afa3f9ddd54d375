package main

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestProgramRuns(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	defer rdb.Close()
	if err := run(t.Context(), rdb); err != nil {
		t.Error(err)
	}
}

// Each program has a client of its own, so all locks go through the server.
func TestTransfersBothWaysNeitherDeadlockNorLoseMoney(t *testing.T) {
	server := testserver.Redis(t)
	names := []string{"alice", "bob", "carol"}
	var all sync.WaitGroup
	for i := range 6 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		b, err := newBank(rdb)
		if err != nil {
			t.Fatal(err)
		}
		defer b.locks.Close()
		if i == 0 {
			if err := b.open(t.Context(), names...); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			for range 50 {
				p := rand.Perm(len(names))
				if err := b.transfer(t.Context(), names[p[0]], names[p[1]], rand.Int64N(300)); err != nil && !errors.Is(err, errFunds) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	b, err := newBank(rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer b.locks.Close()
	if sum, err := b.sum(t.Context(), names...); err != nil || sum != 3000 {
		t.Errorf("the accounts have %d together, %v; they began with 3000", sum, err)
	}
}
