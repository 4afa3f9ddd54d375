package main

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Whoever is woken need not ask.
func TestWokenProgramIsSooner(t *testing.T) {
	server := testserver.Postgres(t)
	woken, err := handOvers(t.Context(), server.URL(), true, 7)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := handOvers(t.Context(), server.URL(), false, 7)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("woken after %v, by asking after %v", woken, asks)
	if woken > asks/2 {
		t.Errorf("woken by NOTIFY it took %v, by asking %v", woken, asks)
	}
}
