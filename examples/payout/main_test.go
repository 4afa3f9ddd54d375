package main

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// TestMain lets the test's binary be a machine.
func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") == "" {
		os.Exit(m.Run())
	}
	if err := work(context.Background(), os.Args[2] == "keys", os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func TestOnlyTheKeyKeepsAPaymentFromBeingMadeTwice(t *testing.T) {
	addr := testserver.Redis(t).Addr()
	for _, trouble := range []string{"killed", "broken"} {
		for way, want := range map[string]int{"lock": len(sellers) + 1, "keys": len(sellers)} {
			b, err := payout(t.Context(), addr, way, trouble)
			if err != nil {
				t.Fatal(err)
			}
			if n := b.payments(); n != want || len(b.paid) != len(sellers) {
				t.Errorf("%s, a machine is %s: %d payments to %d sellers; want %d to %d",
					way, trouble, n, len(b.paid), want, len(sellers))
			}
		}
	}
}
