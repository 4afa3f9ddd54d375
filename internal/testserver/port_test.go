package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestEachPortIsTakenOnce: many servers start at the same time, in several processes, and
// none of them has bound its port when the others look for theirs.
func TestEachPortIsTakenOnce(t *testing.T) {
	const each = 400
	if os.Getenv("TAKE_PORTS") != "" {
		ports, err := takePorts(each)
		check(t, err)
		for _, p := range ports {
			fmt.Println("took", p.number)
		}
		_, err = io.Copy(io.Discard, os.Stdin) // until the others have theirs
		check(t, err)
		return
	}
	var mu sync.Mutex
	taken := make(map[string]bool)
	note := func(number string) {
		mu.Lock()
		defer mu.Unlock()
		if taken[number] {
			t.Errorf("port %s was taken twice", number)
		}
		taken[number] = true
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			ports, err := takePorts(each)
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { freePorts(ports) })
			for _, p := range ports {
				note(fmt.Sprint(p.number))
			}
		})
		group.Go(func() { takeElsewhere(t, each, note) })
	}
	group.Wait()
	if len(taken) != 4*each {
		t.Errorf("%d ports, want %d", len(taken), 4*each)
	}
}

// takeElsewhere takes ports in another process, and notes each.
func takeElsewhere(t *testing.T, each int, note func(number string)) {
	other := exec.Command(os.Args[0], "-test.run=^TestEachPortIsTakenOnce$")
	other.Env = append(os.Environ(), "TAKE_PORTS=yes")
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
	})
	stdout, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	for range each {
		var number string
		if _, err := fmt.Fscanln(stdout, new(string), &number); err != nil {
			t.Error(err)
			return
		}
		note(number)
	}
}

// TestAPortBelongsToItsServerUntilItIsStopped: also while it does not run.
func TestAPortBelongsToItsServerUntilItIsStopped(t *testing.T) {
	s := Redis(t)
	check(t, s.Kill())
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
	check(t, s.Stop())
	check(t, claim())
}
