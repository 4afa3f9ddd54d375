package main

import (
	"go/parser"
	"go/token"
	"os"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// The rehearsal of a release runs the program of the README.
func TestProgramOfTheREADMEParses(t *testing.T) {
	for _, name := range []string{"../../README.md", "../../README.zh-CN.md"} {
		text, err := os.ReadFile(name)
		steps.Must(t, err)
		program, err := readmeProgram(string(text), "127.0.0.1:1")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "main.go", program, parser.AllErrors); err != nil {
			t.Errorf("%s: %v\n%s", name, err, program)
		}
	}
}

func TestREADMEWithOtherBlocksIsRefused(t *testing.T) {
	if program, err := readmeProgram("```go\nimport (\n```\n", "127.0.0.1:1"); err == nil {
		t.Errorf("made %s", program)
	}
}
