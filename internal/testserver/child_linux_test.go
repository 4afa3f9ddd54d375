package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// A test binary that is killed runs no cleanup: the kernel has to end its servers.
func TestAKilledParentLeavesNoServer(t *testing.T) {
	if os.Getenv("TESTSERVER_PARENT") == "1" {
		s, err := StartRedis(t.Context(), t.TempDir())
		steps.Must(t, err)
		fmt.Printf("pid %d addr %s\n", s.Pid(), s.Addr())
		self, err := os.FindProcess(os.Getpid())
		steps.Must(t, err)
		steps.Must(t, self.Kill())
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
	Eventually(t, time.Minute, fmt.Sprintf("process %d no longer listens on %s", pid, addr), func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// A thread that went on for a moment could still answer. ZooKeeper has dozens of them.
func TestAPausedServerStands(t *testing.T) {
	s := ZooKeeper(t)
	for range 20 {
		steps.Same(t, "it stands before it was paused", Stands(s.Pid()), false)
		steps.Must(t, s.Pause())
		steps.Same(t, "it stands after Pause has returned", Stands(s.Pid()), true)
		steps.Must(t, s.Continue())
	}
}
