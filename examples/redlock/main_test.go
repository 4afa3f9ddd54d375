package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestQuorumOutlivesOneServerAndTellsWhoLosesTwo(t *testing.T) {
	var out bytes.Buffer
	if err := play(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"grant nothing", "Initialise", "with token", "two of three renew", "an empty server takes its place", "has lost its lock",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story does not say %q:\n%s", want, out.String())
		}
	}
}
