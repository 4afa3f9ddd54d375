package main

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv("CRON_REPLICA") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What remembers the tick is under test; a lock alone shows that the story can see it.
func TestEachTickIsRunOnce(t *testing.T) {
	played, err := play(t.Context(), testserver.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	for kind, all := range played {
		t.Log(kind, all)
		checkKills(t, kind, all)
	}

	more := 0
	for _, tick := range played["lock-alone"] {
		if tick.done > 1 {
			more++
		}
	}
	if more == 0 {
		t.Error("under a lock alone each tick ran once at most: this test could not see a second run")
	}

	for i, tick := range played["gocronlock"] {
		if tick.begun != 1 {
			t.Errorf("gocronlock, tick %d: begun %d times", i, tick.begun)
		}
		if !tick.killed && tick.done != 1 {
			t.Errorf("gocronlock, tick %d: ran %d times", i, tick.done)
		}
	}

	for _, kind := range []string{"gocron-once", "cronlock"} {
		checkOnce(t, kind, played[kind])
	}
}

func checkKills(t *testing.T, kind string, all []tick) {
	killed := 0
	for _, tick := range all {
		if tick.killed {
			killed++
		}
	}
	if killed != 1 {
		t.Errorf("%s: in %d of %d ticks a replica was killed; it is to be one", kind, killed, len(all))
	}
}

// checkOnce checks that each tick was done once, with rising tokens if it was begun again.
func checkOnce(t *testing.T, kind string, all []tick) {
	for i, tick := range all {
		begun := 1
		if tick.killed {
			begun = 2 // another replica, after the lease of the dead one
		}
		if tick.done != 1 || tick.begun != begun {
			t.Errorf("%s, tick %d: begun %d times, to be %d, and ran %d times, to be 1", kind, i, tick.begun, begun, tick.done)
		}
		for j := 1; j < len(tick.tokens); j++ {
			if tick.tokens[j] <= tick.tokens[j-1] {
				t.Errorf("%s, tick %d: token %d after %d", kind, i, tick.tokens[j], tick.tokens[j-1])
			}
		}
	}
}
