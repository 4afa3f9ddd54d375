package testserver

import "testing"

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
