package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What go run ./nightly does.
func TestTwoMachines(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	if err := twoMachines(t.Context(), &said); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("the machines said %q", lines)
	}
	for i, line := range lines {
		machine, text, _ := strings.Cut(line, ": ")
		want := "working under token"
		if i%2 == 1 {
			want = "done"
		}
		if other, _, _ := strings.Cut(lines[i^1], ": "); machine != other || !strings.HasPrefix(text, want) {
			t.Errorf("the machines did not take turns: %q", lines)
		}
	}
}

func TestNightlyRunsOneAtATime(t *testing.T) {
	server := testserver.Redis(t)
	var inside atomic.Int32
	var last fence.Token
	var machines sync.WaitGroup
	for range 4 {
		machines.Go(func() {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			for range 10 {
				err := nightly(t.Context(), rdb, func(ctx context.Context, l *fencelock.Lease) error {
					if inside.Add(1) != 1 {
						t.Error("two at a time")
					}
					if l.Token() <= last {
						t.Errorf("token %v after %v", l.Token(), last)
					}
					last = l.Token()
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	machines.Wait()
}
