package main

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestMain(m *testing.M) {
	if os.Getenv("MIGRATION_POD") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestOnePodMigratesAndTheOthersGoOn(t *testing.T) {
	c, err := open(t.Context())
	steps.Must(t, err)
	t.Cleanup(c.close)
	for i, d := range deployments {
		t.Run(title(i), func(t *testing.T) {
			t.Parallel()
			o, err := c.deploy(t.Context(), i, func(pod, line string) { t.Log("pod", pod, line) })
			steps.Must(t, err)
			t.Log(o)
			if dirty := d.tool == "migratelock" && d.killed; o.version != 2 || o.dirty != dirty {
				t.Errorf("the database is at version %d, dirty: %v", o.version, o.dirty)
			}
			for pod, pieces := range o.pieces {
				if pieces != 300 {
					t.Errorf("pod %s serves %d pieces, not 300", pod, pieces)
				}
			}
			switch {
			case d.tool == "goose":
				// What the lock is for: without it this test sees pods that fail.
				if len(o.failed) != 2 || len(o.applied) != 1 {
					t.Errorf("without a lock the pods %v failed and %v served", o.failed, o.applied)
				}
			case o.dirty: // the others stop, until a person has looked
				if len(o.failed) != 2 || len(o.applied) != 0 {
					t.Errorf("on a dirty database the pods %v failed and %v served", o.failed, o.applied)
				}
			default:
				checkPods(t, o, d.killed)
				checkTokens(t, o)
			}
		})
	}
}

// checkPods checks that one pod migrated, and that all pods that were not killed served.
func checkPods(t *testing.T, o outcome, killed bool) {
	survivors, applied := 3, 2
	if killed {
		survivors, applied = 2, 1 // the first migration was whole, the second one is begun again
		if o.missed <= 0 {
			t.Error("no other pod could migrate after the kill")
		}
	}
	if len(o.failed) != 0 || len(o.applied) != survivors {
		t.Errorf("the pods %v failed and %v served", o.failed, o.applied)
	}
	steps.Same(t, "pods waited", o.waited, 2)
	migrated := 0
	for _, n := range o.applied {
		if n != 0 && n != applied {
			t.Errorf("a pod applied %d migrations", n)
		}
		if n != 0 {
			migrated++
		}
	}
	if migrated != 1 {
		t.Errorf("%d pods migrated: %v", migrated, o.applied)
	}
}

func checkTokens(t *testing.T, o outcome) {
	if len(o.tokens) != 3 {
		t.Errorf("the lock was granted %d times, under the tokens %v", len(o.tokens), o.tokens)
	}
	for j := 1; j < len(o.tokens); j++ { // the two others may be heard in any order
		if o.tokens[j] <= o.tokens[0] {
			t.Errorf("a later token is not larger than the first: %v", o.tokens)
		}
	}
}
