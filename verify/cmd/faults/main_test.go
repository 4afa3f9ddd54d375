package main

import (
	"os"
	"testing"
)

func TestPageOfFaultsIsUpToDate(t *testing.T) {
	want, err := page("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../faults.md")
	if err != nil || string(got) != want {
		t.Errorf("verify/faults.md is not what the comments //verify:fault of the tests say (%v); "+
			"write it anew: cd verify && go run ./cmd/faults", err)
	}
}
