package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A test binary that is killed runs no cleanup: the kernel has to end its servers.
func TestAKilledParentLeavesNoServer(t *testing.T) {
	if os.Getenv("TESTSERVER_PARENT") == "1" {
		s, err := StartRedis(t.Context(), t.TempDir())
		check(t, err)
		fmt.Printf("pid %d addr %s\n", s.Pid(), s.Addr())
		self, err := os.FindProcess(os.Getpid())
		check(t, err)
		check(t, self.Kill())
		select {}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledParentLeavesNoServer$")
	cmd.Env = append(os.Environ(), "TESTSERVER_PARENT=1", "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err == nil {
		t.Fatal("the parent was to be killed")
	}
	var pid int
	var addr string
	if _, err := fmt.Sscanf(string(out), "pid %d addr %s", &pid, &addr); err != nil {
		t.Fatalf("the parent printed %q: %v", out, err)
	}
	end := time.Now().Add(10 * time.Second)
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
		if time.Now().After(end) {
			t.Fatalf("process %d still listens on %s", pid, addr)
		}
	}
}

// A thread that went on for a moment could still answer. ZooKeeper has dozens of them.
func TestAPausedServerStands(t *testing.T) {
	s := ZooKeeper(t)
	for range 20 {
		if Stands(s.Pid()) {
			t.Fatal("it stands before it was paused")
		}
		check(t, s.Pause())
		if !Stands(s.Pid()) {
			t.Fatal("it goes on after Pause has returned")
		}
		check(t, s.Continue())
	}
}
