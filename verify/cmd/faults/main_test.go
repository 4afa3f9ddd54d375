package main

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestPageOfFaultsIsUpToDate(t *testing.T) {
	want, err := page("../../..")
	steps.Must(t, err)
	got, err := os.ReadFile("../../faults.md")
	if err != nil || string(got) != want {
		t.Errorf("verify/faults.md is not what the comments //verify:fault of the tests say (%v); "+
			"write it anew: cd verify && go run ./cmd/faults", err)
	}
}
