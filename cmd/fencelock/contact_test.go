//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// silentServer takes connections and says nothing: it is stopped.
func silentServer(t *testing.T) (*testserver.Server, *stage) {
	t.Helper()
	server := testserver.Redis(t)
	must(t, server.Pause())
	t.Cleanup(func() { _ = server.Continue() })
	return server, newStage(t, server.URL())
}

func TestUnreachableServerIsToldSoon(t *testing.T) {
	t.Parallel()
	server, s := silentServer(t)
	begun := time.Now()
	code, p := s.run("fencelock", "run", "n", "--", "touch", "ran")
	if code != exitUnavailable || time.Since(begun) > 2*firstContact {
		t.Errorf("exit %d after %v", code, time.Since(begun))
	}
	p.wantLine(server.Addr(), "no answer in time")
	steps.Same(t, "the command ran", s.read("ran"), "")
}

func TestSignalEndsTheFirstContact(t *testing.T) {
	t.Parallel()
	server, s := silentServer(t)
	p := s.start("fencelock", "run", "n", "--", "true")
	// It listens for signals before it connects.
	eventually(t, "it is connected", func() bool { return connected(server.Addr()) })
	p.signal("TERM")
	begun := time.Now()
	if code := p.wait(); code != 143 || time.Since(begun) > firstContact/2 {
		t.Errorf("exit %d after %v, want 143 at once: %s", code, time.Since(begun), p.err.String())
	}
}

// connected reports whether anybody has a connection to addr.
func connected(addr string) bool {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	table, _ := os.ReadFile("/proc/net/tcp")
	return strings.Contains(string(table), fmt.Sprintf(" 0100007F:%04X 01 ", n))
}

// A server that accepts and says nothing takes no more of one's time than -w allows.
func TestWaitCoversTheFirstContact(t *testing.T) {
	t.Parallel()
	_, s := silentServer(t)
	for _, args := range [][]string{
		{"run", "-w", "1", "n", "--", "true"},
		{"once", "-w", "0.1", "n", "--slot", "hour", "--", "true"},
		{"wait", "-w", "1", "n"},
	} {
		began := time.Now()
		p := s.wants(exitUnavailable, args...)
		p.wantLine("does not answer")
		if took := time.Since(began); took >= firstContact {
			t.Errorf("%v took %v", args, took)
		}
	}
}

// A Redis that may delete locks is warned of, unless -q, and is an error to doctor.
func TestEvictingRedisIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	s := newStage(t, server.URL())
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		must(t, rdb.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		must(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		for _, quiet := range []string{"-q", "-E75"} {
			_, p := s.run("fencelock", "run", quiet, "n", "--", "true")
			want := policy != "noeviction" && quiet != "-q"
			if got := strings.Contains(p.err.String(), "maxmemory-policy "+policy); got != want {
				t.Errorf("%s, %s: it says %q", policy, quiet, p.err.String())
			}
		}
	}
	p := s.wants(exitConfig, "doctor")
	if text := p.out.String(); !strings.Contains(text, "error     redis-eviction") {
		t.Errorf("doctor says %q", text)
	}
}
