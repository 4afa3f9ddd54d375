package testserver

import (
	"strings"
	"testing"
)

func TestZooKeeperServesAndRestarts(t *testing.T) {
	s := ZooKeeper(t, Persist(true))
	for range 2 {
		text, err := s.FourLetters(t.Context(), "srvr")
		check(t, err)
		if !strings.Contains(text, "Mode: standalone") {
			t.Errorf("srvr answered %q", text)
		}
		check(t, s.Restart())
	}
}

func TestZooKeeperEnsembleHasOneLeader(t *testing.T) {
	leaders := 0
	for _, s := range ZooKeeperEnsemble(t, 3) {
		if s.Leads() {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d of three servers lead; want 1", leaders)
	}
}
