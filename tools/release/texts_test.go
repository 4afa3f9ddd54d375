package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func TestTextsOfAReleaseLeadToTheRepository(t *testing.T) {
	const text = "a<!-- unreleased -->not yet: [x](y)<!-- end --> [b](docs/b.md#c), [d](https://e), [f](#g), ![p](docs/p.png), " +
		`<source srcset="docs/d.svg"><img src="docs/l.svg">`
	const want = "a[b](https://github.com/fencelock/fencelock/blob/v1.2.3/docs/b.md#c), [d](https://e), [f](#g), " +
		"![p](https://github.com/fencelock/fencelock/raw/v1.2.3/docs/p.png), " +
		`<source srcset="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/d.svg">` +
		`<img src="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/l.svg">`
	if got := absoluteLinks("README.md", released(text), "v1.2.3"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The READMEs say in the tree that nothing is released yet, and in a release that it is.
func TestTheREADMEsAreReleased(t *testing.T) {
	for _, name := range readmes {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		steps.Must(t, err)
		after := released(string(text))
		for _, word := range []string{"Unreleased", "尚未发布", "<!--"} {
			if strings.Contains(after, word) {
				t.Errorf("%s of a release says %q", name, word)
			}
		}
	}
}

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
