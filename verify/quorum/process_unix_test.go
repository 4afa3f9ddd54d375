//go:build unix

package quorum_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// A holder that is killed is gone after its lease.
func TestKilledHolderIsGoneAfterItsLease(t *testing.T) {
	t.Parallel()
	all := ready(t, 5)
	p := start(t, order{addrs(all), "k", lease})
	token := p.hears("held")
	c := client(t, all, lease)
	check(t, p.cmd.Process.Kill())
	killed := time.Now()
	next := free(t, c, "k", 20*time.Second)
	if d := time.Since(killed); d > lease+2*time.Second {
		t.Errorf("the lock of a killed process was free after %v; its lease is %v", d, lease)
	}
	if int64(next.Token()) <= token {
		t.Errorf("token %v after %d", next.Token(), token)
	}
}

// A holder that is stopped past its lease learns at its first look that it has lost
// the lock. Two of the nodes are down besides. Nobody believes while another does.
func TestStoppedHolderNeverOverlaps(t *testing.T) {
	t.Parallel()
	all := ready(t, 5)
	p := start(t, order{addrs(all), "k", lease})
	token := p.hears("held")
	p.hears("believes")
	c := client(t, all, lease)
	check(t, all[0].Pause())
	check(t, all[1].Kill())
	check(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	next, err := c.Lock(t.Context(), "k", fencelock.Wait(20*time.Second))
	check(t, err)
	got := time.Now().UnixNano()
	if int64(next.Token()) <= token {
		t.Errorf("token %v after %d", next.Token(), token)
	}
	check(t, p.cmd.Process.Signal(syscall.SIGCONT))
	p.hears("lost")
	if p.believed >= got {
		t.Errorf("the stopped process believed %v after the next one was granted", time.Duration(p.believed-got))
	}
	check(t, next.Err())
	check(t, next.Release(t.Context()))
	check(t, all[0].Continue())
}
