package main

import (
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// The image that users run has neither a shell nor root. Docker itself builds it in CI.
func TestImageHasNoShellAndNoRoot(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	steps.Must(t, err)
	last := lastStage(string(text))
	if from := last["FROM"]; len(from) != 1 || from[0] != "scratch" {
		t.Errorf("the last stage is FROM %q, want scratch", from)
	}
	if user := last["USER"]; len(user) != 1 || user[0] == "root" || strings.HasPrefix(user[0], "0") {
		t.Errorf("USER %q", user)
	}
	if len(last["RUN"]) > 0 {
		t.Errorf("the last stage runs %q, and has no shell for it", last["RUN"])
	}
	for _, instruction := range []string{"ENTRYPOINT", "CMD"} {
		for _, arguments := range last[instruction] {
			if !strings.HasPrefix(arguments, "[") {
				t.Errorf("%s %s needs a shell", instruction, arguments)
			}
		}
	}
	if len(last["ENTRYPOINT"]) != 1 {
		t.Errorf("ENTRYPOINT %q", last["ENTRYPOINT"])
	}
}

// lastStage returns the arguments of each instruction in the last stage of a Dockerfile.
func lastStage(text string) map[string][]string {
	last := map[string][]string{}
	for line := range strings.Lines(text) {
		instruction, arguments, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(instruction, "#") {
			continue
		}
		if instruction == "FROM" {
			clear(last)
		}
		last[instruction] = append(last[instruction], arguments)
	}
	return last
}
