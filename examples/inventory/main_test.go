//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/fencelock/fencelock/fence"
)

var runs = flag.Int("runs", 2, "how many sales to play for each kind of lock")

func TestMain(m *testing.M) {
	if os.Getenv("INVENTORY_INSTANCE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// One instance is stopped between reading and writing. The next one has read, and has not written yet, when
// the first one wakes up and writes.
func TestLateWriteBeforeTheNextOnesWriteIsRefused(t *testing.T) {
	s, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ctx := t.Context()
	if _, err := s.db.ExecContext(ctx, "UPDATE stock SET pieces = 10"); err != nil {
		t.Fatal(err)
	}
	first, err := lookGuarded(ctx, s.db, 7)
	if err != nil {
		t.Fatal(err)
	}
	next, err := lookGuarded(ctx, s.db, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeGuarded(ctx, s.db, first-1, 7); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write: %v", err)
	}
	if err := writeGuarded(ctx, s.db, next-1, 8); err != nil {
		t.Error(err)
	}
	var pieces, orders int
	err = s.db.QueryRowContext(ctx, "SELECT pieces, (SELECT count(*) FROM orders) FROM stock").Scan(&pieces, &orders)
	if err != nil || pieces+orders != 10 {
		t.Errorf("%d pieces are left and %d are sold of 10: %v", pieces, orders, err)
	}
}

// The ways that are right never oversell. The others show that the sale can see it.
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
				if k.right && sold != pieces {
					t.Errorf("sale %d: %d of %d pieces were sold", i, sold, pieces)
				}
			}
		})
	}
	fmt.Printf("oversold of %d: %v\n", *runs, oversold)
	for _, k := range kinds {
		if !k.right && oversold[k.name] == 0 {
			t.Errorf("%s never oversold: this test could not see it if fencelock did", k.name)
		}
	}
}
