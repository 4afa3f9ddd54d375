//go:build unix

package quorum_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

// holder starts a worker that holds a lock on the servers.
func holder(t *testing.T, all []*testserver.Server) (p *worker.Process, token fence.Token) {
	t.Helper()
	p = worker.Start(t, addrs(all))
	_, err := fmt.Sscan(p.Hears("held"), &token)
	steps.Must(t, err)
	return p, token
}

// A holder that is killed is gone after its lease.
//
//verify:fault A quorum of five Redis | the holder is killed
func TestKilledHolderIsGoneAfterItsLease(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	p, token := holder(t, all)
	p.Kill()
	steps.Rises(t, token, free(t, client(t, all, time.Minute), "k").Token())
}

// A holder that is stopped past its lease learns at its first look that it has lost
// the lock. Two of the nodes are down besides. Nobody believes while another does.
//
//verify:fault A quorum of five Redis | the holder is stopped past its lease
func TestStoppedHolderNeverOverlaps(t *testing.T) {
	t.Parallel()
	all := ready(t, servers(t, 5), lasting)
	p, token := holder(t, all)
	p.Hears("believes")
	c := client(t, all, time.Minute)
	steps.Must(t, all[0].Pause())
	steps.Must(t, all[1].Kill())
	p.Signal(syscall.SIGSTOP)
	next := lock(t, c, "k", fencelock.Wait(time.Minute))
	got := time.Now().UnixNano()
	steps.Rises(t, token, next.Token())
	p.Signal(syscall.SIGCONT)
	_, said := p.Until("lost")
	for _, line := range said {
		var believed int64
		if _, err := fmt.Sscanf(line, "believes %d", &believed); err != nil || believed >= got {
			t.Fatalf("the stopped process said %q, %v; the next one was granted at %d", line, err, got)
		}
	}
	steps.Must(t, next.Err())
	steps.Must(t, next.Release(t.Context()))
	steps.Must(t, all[0].Continue())
}
