package testserver

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// TestEachPortIsTakenOnce: many servers start at the same time, and none of them has bound its port when the
// others look for theirs.
func TestEachPortIsTakenOnce(t *testing.T) {
	const each = 400
	taken := make(chan int, 4*each)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			ports, err := takePorts(each)
			steps.OK(t, err)
			t.Cleanup(func() { freePorts(ports) })
			for _, p := range ports {
				taken <- p.number
			}
		})
	}
	group.Wait()
	close(taken)
	seen := map[int]bool{}
	for number := range taken {
		seen[number] = true
	}
	steps.Same(t, "ports", len(seen), 4*each)
}

// TestAPortBelongsToItsServerUntilItIsStopped: also while it does not run.
func TestAPortBelongsToItsServerUntilItIsStopped(t *testing.T) {
	s := Redis(t)
	steps.Must(t, s.Kill())
	claim := func() error {
		c, err := net.ListenPacket("udp4", s.Addr())
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := claim(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the port of a server that was killed and may be started again is free: %v", err)
	}
	steps.Must(t, s.Stop())
	steps.Must(t, claim())
}

// TestAPortCanBeBoundBesideStartingProcesses: a process that is being started has what this one has open, and keeps it
// for a moment.
func TestAPortCanBeBoundBesideStartingProcesses(t *testing.T) {
	var others sync.WaitGroup
	defer others.Wait()
	enough := make(chan struct{})
	defer close(enough)
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
					steps.OK(t, exec.Command("true").Run())
				}
			}
		})
	}
	for range 2000 {
		ports, err := takePorts(1)
		steps.Must(t, err)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", ports[0].number))
		steps.Must(t, err)
		l.Close()
		freePorts(ports)
	}
}
