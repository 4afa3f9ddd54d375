package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/internal/terminal"
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
