package fencelock_test

import (
	"cmp"
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

const rootModule = "github.com/fencelock/fencelock"

// goFile is one file of the repository and what it imports.
type goFile struct {
	name    string // slash-separated, from the root of the repository
	dir     string
	module  string // directory of its module, "." for the root module
	test    bool
	imports []string
}

// repository reads the imports of every Go file, whatever its build tags: what is
// built on another system only must keep the rules as well.
func repository(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	modules := map[string]string{} // of each directory
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			base := d.Name()
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor") {
				return filepath.SkipDir
			}
			modules[name] = modules[path.Dir(name)]
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				modules[name] = name
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's file, gone again
		}
		if err != nil {
			return err
		}
		g := goFile{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
		g.module = modules[g.dir]
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			g.imports = append(g.imports, p)
		}
		files = append(files, g)
		return nil
	})
	must(t, err)
	return files
}

// standard reports whether p is a package of the standard library. Cgo is none.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && p != "C"
}

// ours returns the directory of p, "." for the core, and whether p is of this repository.
func ours(p string) (dir string, ok bool) {
	if p == rootModule {
		return ".", true
	}
	return strings.CutPrefix(p, rootModule+"/")
}

// within reports whether dir is one of these, or below one of them.
func within(dir string, these ...string) bool {
	return slices.ContainsFunc(these, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") })
}

// allowed says which packages of this repository a package may import, other than its own. A package without
// a rule imports what it likes.
var allowed = []struct{ of, imports, why string }{
	{"fence", "", "fence stands on its own"},
	{"driver", "fence internal/errs internal/limit", "the contract imports no backend, and not the core"},
	{"internal/escape internal/errs internal/limit", "", "what backends share imports none of them"},
	{"internal/driverutil", "driver", "what backends share imports the contract alone"},
	{
		"drivertest", "driver fence memlock internal/driverutil internal/limit",
		"drivertest needs the contract and its reference, not the core",
	},
	{"internal/line", "driver internal/driverutil", "the rule imports the contract alone"},
	{
		"swaplock internal/swapsql internal/swapkv",
		"driver internal/clock internal/driverutil internal/limit internal/line swaplock",
		"stores that swap import the contract, the rule and the clock, and no backend",
	},
	{
		"memlock bridge sqllock quorumlock redislock etcdlock zklock natslock s3lock",
		"driver fence internal/driverutil internal/errs internal/escape internal/limit internal/line swaplock internal/swapsql internal/swapkv",
		"a backend imports the contract, tokens, the rule and what backends share, not the core, nor another backend",
	},
	{
		"internal/agenda internal/callctx internal/clock internal/dispatch internal/stall", "internal/clock",
		"what the core builds on knows nothing of claims",
	},
	{
		".",
		"internal/agenda internal/callctx internal/clock internal/dispatch internal/stall driver fence internal/driverutil internal/errs internal/limit",
		"the core imports the contract, tokens and what is its own, and no backend",
	},
}

// ends are what nothing may depend on.
var ends = []string{"cmd", "verify", "examples", "integrations", "tools"}

// breach says which rule an import breaks, or nothing.
func breach(f goFile, imported string) string {
	dir, own := ours(imported)
	switch {
	case !own && f.module == "." && !standard(imported):
		return "the root module, its tests included, imports nothing but the standard library"
	case !own:
		return ""
	case f.module == "." && within(dir, "redislock", "etcdlock", "zklock", "natslock", "s3lock", "httplock", "promfence", "otelfence"):
		return "the root module needs none of the other modules"
	case within(dir, "integrations") && within(f.module, "examples"):
		return "" // they show how integrations are used
	case within(dir, ends...) && !within(dir, f.module):
		return "nothing imports cmd, verify, examples, integrations and tools"
	case within(dir, "lab") && !within(f.module, "lab"):
		return "the lab is for its own command only"
	case f.test:
		return ""
	}
	return cmp.Or(breachOfTests(f, dir), breachOfLayers(f, dir))
}

func breachOfLayers(f goFile, dir string) string {
	for _, rule := range allowed {
		for _, of := range strings.Fields(rule.of) {
			if within(f.dir, of) && !within(dir, append(strings.Fields(rule.imports), of)...) {
				return rule.why
			}
		}
	}
	return ""
}

// breachOfTests is breach for packages that help tests, imported by files that are not tests.
func breachOfTests(f goFile, dir string) string {
	switch {
	case within(dir, "internal/testserver") && within(f.module, "cmd", "storeurl"):
		return "what is released starts no servers"
	case dir == "drivertest" && !within(f.dir, "drivertest"):
		return "drivertest is imported by tests only"
	case within(dir, "internal/testserver") && f.dir != "internal/testserver" && f.module == ".":
		return "servers for tests are started by tests"
	}
	return ""
}

func TestImportsKeepTheRules(t *testing.T) {
	files := repository(t)
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.dir] = true
		for _, p := range f.imports {
			if rule := breach(f, p); rule != "" {
				t.Errorf("%s imports %s: %s", f.name, p, rule)
			}
		}
	}
	for _, dir := range []string{".", "driver", "drivertest", "fence", "memlock", "sqllock", "quorumlock", "redislock", "etcdlock", "zklock", "natslock", "s3lock"} {
		if !seen[dir] {
			t.Errorf("no Go file was found in %s: the rules were not checked there", dir)
		}
	}
}

func TestRootModuleRequiresNothing(t *testing.T) {
	for line := range strings.Lines(readFile(t, "go.mod")) {
		if line != "\n" && line != "module "+rootModule+"\n" && !strings.HasPrefix(line, "go ") {
			t.Errorf("go.mod: %s", line)
		}
	}
	steps.Is(t, "the root module needs no go.sum", errOf(os.Stat("go.sum")), fs.ErrNotExist)
}

// A program that uses one backend never meets the other stores' clients in go.sum.
func TestModulesCarryNoOtherStoresClient(t *testing.T) {
	for line := range strings.Lines(readFile(t, "redislock/go.mod")) {
		if name, needed := strings.CutPrefix(line, "\t"); needed && !strings.Contains(line, "// indirect") &&
			!strings.HasPrefix(name, rootModule+" ") && !strings.HasPrefix(name, "github.com/redis/go-redis/v9 ") {
			t.Errorf("redislock/go.mod requires %s", name)
		}
	}
	stores := map[string][]string{
		"redislock": {"redis"}, "etcdlock": {"etcd", "grpc"}, "zklock": {"zookeeper", "/zk"}, "natslock": {"nats"},
		"s3lock":  {"aws-sdk-go"},
		"sqllock": {"sqllock", "pgx", "lib/pq", "mysql", "mariadb", "sqlite"}, "command": {"cobra"},
	}
	for _, module := range []string{"redislock", "etcdlock", "zklock", "natslock", "s3lock"} {
		for _, file := range []string{"go.mod", "go.sum"} {
			for line := range strings.Lines(strings.ToLower(readFile(t, filepath.Join(module, file)))) {
				for store, words := range stores {
					found := func(word string) bool { return strings.Contains(line, word) }
					if store != module && slices.ContainsFunc(words, found) {
						t.Errorf("%s/%s names %s: %s", module, file, store, strings.TrimSpace(line))
					}
				}
			}
		}
	}
}

// Client is what every call goes through, so what can belong to another type does.
func TestClientHasFewMethods(t *testing.T) {
	const most = 35
	files, err := filepath.Glob("*.go")
	must(t, err)
	methods := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		methods += strings.Count("\n"+readFile(t, name), "\nfunc (c *Client) ")
	}
	if methods == 0 || methods > most {
		t.Errorf("Client has %d methods; want 1 to %d: give them to the type that they are about", methods, most)
	}
}
