//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var runs = flag.Int("runs", 3, "how many sales to play for each kind of lock")

func TestMain(m *testing.M) {
	if os.Getenv("INVENTORY_INSTANCE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The guard is what is under test; the two others show that the sale can see it.
func TestOnlyTheGuardedSaleNeverOversells(t *testing.T) {
	s, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	oversold := map[string]int{}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for i := range *runs {
				sold, _, err := s.sale(t.Context(), k.name, pieces, true)
				if err != nil {
					t.Fatalf("sale %d: %v", i, err)
				}
				if sold > pieces {
					oversold[k.name]++
				}
				if k.name != "no-lock" && k.name != "tutorial" && sold != pieces {
					t.Errorf("sale %d: %d of %d pieces were sold", i, sold, pieces)
				}
			}
		})
	}
	fmt.Printf("oversold of %d: %v\n", *runs, oversold)
	for _, name := range []string{"no-lock", "tutorial"} {
		if oversold[name] == 0 {
			t.Errorf("%s never oversold: this test could not see it if fencelock did", name)
		}
	}
}
