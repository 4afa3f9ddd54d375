package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/internal/terminal"
)

var updateCLI = flag.Bool("update-cli", false, "write docs/cli.md")

const cliPage = `# The command, verb by verb

For those who use fencelock from a shell. This page is what ` + "`fencelock --help` and `fencelock VERB --help`" + ` print.

`

// docs/cli.md has the help of each verb as the command prints it.
func TestPageOfTheCommandIsItsHelp(t *testing.T) {
	root := newRoot(&cli{out: terminal.Stdout()})
	var index, text strings.Builder
	help := func(cmd *cobra.Command) {
		var b bytes.Buffer
		cmd.SetOut(&b)
		cmd.InitDefaultHelpFlag()
		must(t, cmd.Help())
		fmt.Fprintf(&index, "- [%s](#%s): %s\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
		fmt.Fprintf(&text, "\n## %s\n\n```text\n%s\n```\n", cmd.CommandPath(), strings.TrimRight(b.String(), "\n"))
	}
	help(root)
	for _, verb := range root.Commands() {
		if verb.IsAvailableCommand() && !slices.Contains([]string{"man", "help"}, verb.Name()) {
			help(verb)
			for _, part := range verb.Commands() {
				help(part)
			}
		}
	}
	got := cliPage + index.String() + text.String()
	const name = "../../docs/cli.md"
	if *updateCLI {
		must(t, os.WriteFile(name, []byte(got), 0o644)) //nolint:gosec // a page that all may read
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if got != string(want) {
		t.Errorf("docs/cli.md is not the help of the command; in cmd/fencelock: go test -run TestPageOfTheCommandIsItsHelp -update-cli .")
	}
}
