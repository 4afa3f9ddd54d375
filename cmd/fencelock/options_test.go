package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// docs/options.md has every option of the library, every flag of the verbs that take a lock, and every field of
// a request.
func TestTableOfOptionsIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/options.md")
	must(t, err)
	wants := func(name string) {
		if !regexp.MustCompile("`(?:[^`]*[ .])?" + regexp.QuoteMeta(name) + "(?:[ (][^`]*)?`").Match(page) {
			t.Errorf("docs/options.md does not name %s", name)
		}
	}
	for _, verb := range newRoot(&cli{out: terminal.Stdout()}).Commands() {
		switch verb.Name() {
		case "run", "once", "acquire":
			verb.Flags().VisitAll(func(f *pflag.Flag) { wants("--" + f.Name) })
		}
	}
	source, err := os.ReadFile("../../options.go")
	must(t, err)
	options := regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(.*\) (?:Lease)?Option \{`).FindAllSubmatch(source, -1)
	if len(options) < 8 {
		t.Fatalf("options.go has %d options; this test reads it wrongly", len(options))
	}
	for _, option := range options {
		wants(string(option[1]))
	}
	text, err := os.ReadFile("../../httplock/openapi.json")
	must(t, err)
	var api struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	must(t, json.Unmarshal(text, &api))
	for _, request := range []string{"Acquire", "Once"} {
		if len(api.Components.Schemas[request].Properties) == 0 {
			t.Fatalf("openapi.json has no fields of %s", request)
		}
		for field := range api.Components.Schemas[request].Properties {
			wants(strings.ToLower(field))
		}
	}
}

// What is said of a call that the store did not do, and the exit code: only a store that gave no
// answer "does not answer".
func TestOutcomesHaveTheirWords(t *testing.T) {
	u, err := storeurl.Parse("mysql://u@h/d", storeurl.Source{Name: "--url"})
	must(t, err)
	s := &store{URL: u, source: "--url"}
	told := func(err error) error { return fmt.Errorf("lock n: %w: %w", fencelock.ErrUnavailable, err) }
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{told(driver.Refused(errors.New("READONLY x"))), exitUnavailable,
			`"n": mysql h:3306/d refuses for now: READONLY x; nothing happened; solve that on the server, then try again`},
		{told(driverutil.Unsettled(driver.Refused(&mysql.MySQLError{Number: 1290, Message: "x"}))), exitUnavailable,
			`"n": mysql h:3306/d answers with an error: Error 1290: x; solve that on the server, then try again`},
		{told(&mysql.MySQLError{Number: 1317, Message: "interrupted"}), exitUnavailable,
			`"n": mysql h:3306/d answers with an error: Error 1317: interrupted; solve that on the server, then try again`},
		{told(errors.New("connection refused")), exitUnavailable,
			`"n": mysql h:3306/d does not answer: connection refused; check that the server runs and can be reached, and --url`},
		{told(driver.Permanent(errors.New("a right is missing"))), exitConfig, `"n": mysql h:3306/d: a right is missing`},
	} {
		var own *failure
		if err := explain(s, "n", tt.err); !errors.As(err, &own) || own.code != tt.code || own.text != tt.text {
			t.Errorf("%v\n is told as: %v\n       want: %s, code %d", tt.err, err, tt.text, tt.code)
		}
	}
}

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
