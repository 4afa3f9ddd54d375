//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestUnreachableServerIsToldSoon(t *testing.T) {
	// A server that takes connections and says nothing: one that is stopped.
	server := testserver.Redis(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Continue() })
	s := newStage(t, server.URL())
	begun := time.Now()
	code, p := s.run("fencelock", "run", "n", "--", "touch", "ran")
	if code != exitUnavailable || time.Since(begun) > 2*firstContact {
		t.Errorf("exit %d after %v", code, time.Since(begun))
	}
	p.wantLine(server.Addr(), "no answer in time")
	if s.read("ran") != "" {
		t.Error("the command ran")
	}
}

func TestSignalEndsTheFirstContact(t *testing.T) {
	server := testserver.Redis(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Continue() })
	s := newStage(t, server.URL())
	p := s.start("fencelock", "run", "n", "--", "true")
	// It listens for signals before it connects.
	eventually(t, "it is connected", func() bool { return connected(server.Addr()) })
	p.signal("TERM")
	begun := time.Now()
	if code := p.wait(); code != 143 || time.Since(begun) > firstContact/2 {
		t.Errorf("exit %d after %v, want 143 at once: %s", code, time.Since(begun), p.err.String())
	}
}

func connected(addr string) bool {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	table, _ := os.ReadFile("/proc/net/tcp")
	return strings.Contains(string(table), fmt.Sprintf(" 0100007F:%04X 01 ", n))
}

func TestWaitCoversTheFirstContact(t *testing.T) {
	server := testserver.Redis(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	s := newStage(t, server.URL())
	for _, args := range [][]string{
		{"run", "-w", "1", "n", "--", "true"},
		{"once", "-w", "0.1", "n", "--slot", "hour", "--", "true"},
		{"wait", "-w", "1", "n"},
	} {
		began := time.Now()
		code, p := s.run("fencelock", args...)
		if code != exitUnavailable {
			t.Errorf("%v: exit %d, want %d", args, code, exitUnavailable)
		}
		p.wantLine("does not answer")
		if took := time.Since(began); took >= firstContact {
			t.Errorf("%v took %v", args, took)
		}
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
}
