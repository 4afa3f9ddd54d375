package fencelock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// standard reports whether p is a package of the standard library. Cgo is none.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && p != "C"
}

// ours returns the directory of p in this repository, "." for the core, and whether
// p is ours at all.
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

// backends are the packages that keep locks in a store; those that are not there
// yet are not looked for.
var backends = []string{"memlock", "sqllock", "quorumlock", "redislock", "etcdlock", "zklock"}

// ends are what nothing may depend on.
var ends = []string{"cmd", "verify", "examples", "integrations", "tools"}

// breach says which rule an import breaks, or nothing.
func breach(f goFile, imported string) string {
	dir, own := ours(imported)
	switch {
	case f.module == "." && !own && !standard(imported):
		return "the root module, its tests included, imports nothing but the standard library"
	case f.module == "." && own && within(dir, "redislock", "etcdlock", "zklock"):
		return "the root module needs none of the other modules"
	case own && within(dir, "integrations") && within(f.module, "examples"):
		return "" // they show how integrations are used
	case own && within(dir, ends...) && !within(dir, f.module):
		return "nothing imports cmd, verify, examples, integrations and tools"
	case !own:
		return ""
	case within(dir, "lab") && !within(f.module, "lab"):
		return "the lab is for its own command only"
	case within(dir, "internal/testserver") && !f.test && within(f.module, "cmd", "storeurl"):
		return "what is released starts no servers"
	case dir == "drivertest" && !f.test && !within(f.dir, "drivertest"):
		return "drivertest is imported by tests only"
	case within(dir, "internal/testserver") && f.dir != "internal/testserver" && !f.test && f.module == ".":
		return "servers for tests are started by tests"
	case f.test:
		return ""
	case within(f.dir, "fence"):
		return "fence stands on its own"
	case within(f.dir, "driver") && !within(dir, "fence"):
		return "the contract knows nobody who keeps it or uses it"
	case within(f.dir, "internal/escape"):
		return "what backends share knows none of them"
	case within(f.dir, backends...) && !within(dir, "driver", "fence", "internal/escape", backendOf(f.dir)):
		return "a backend imports the contract, tokens and internal/escape, not the core, nor another backend"
	case within(f.dir, "drivertest") && !within(dir, "driver", "fence", "memlock", "drivertest"):
		return "drivertest needs the contract and its reference, not the core"
	case f.dir == "." && !within(dir, "driver", "fence"):
		return "the core imports the contract and tokens, and no backend"
	}
	return ""
}

func backendOf(dir string) string {
	for _, b := range backends {
		if within(dir, b) {
			return b
		}
	}
	return dir
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
	for _, dir := range []string{".", "driver", "drivertest", "fence", "memlock", "sqllock", "quorumlock", "redislock", "etcdlock", "zklock"} {
		if !seen[dir] {
			t.Errorf("no Go file was found in %s: the rules were not checked there", dir)
		}
	}
}

// A rule that catches nothing is no rule.
func TestRulesCatchEachBreach(t *testing.T) {
	in := func(name, module string) goFile {
		return goFile{name: name, dir: path.Dir(name), module: module, test: strings.HasSuffix(name, "_test.go")}
	}
	own := func(dir string) string { return rootModule + "/" + dir }
	for _, c := range []struct {
		f       goFile
		imports string
		allowed bool
	}{
		{in("client.go", "."), "context", true},
		{in("client.go", "."), own("driver"), true},
		{in("client.go", "."), own("fence"), true},
		{in("client.go", "."), own("memlock"), false},
		{in("client.go", "."), own("drivertest"), false},
		{in("client.go", "."), "golang.org/x/sync/semaphore", false},
		{in("client.go", "."), "C", false},
		{in("client_test.go", "."), own("memlock"), true},
		{in("client_test.go", "."), own("drivertest"), true},
		{in("client_test.go", "."), own("redislock"), false},
		{in("client_test.go", "."), "github.com/stretchr/testify", false},
		{in("client_test.go", "."), own("verify/bench"), false},
		{in("driver/backend.go", "."), "iter", true},
		{in("driver/backend.go", "."), rootModule, false},
		{in("driver/backend.go", "."), own("memlock"), false},
		{in("drivertest/lease.go", "."), own("driver"), true},
		{in("drivertest/lease.go", "."), own("memlock"), true},
		{in("drivertest/lease.go", "."), rootModule, false},
		{in("drivertest/faulty/faulty.go", "."), own("driver"), true},
		{in("drivertest/lease_test.go", "."), own("drivertest/faulty"), true},
		{in("memlock/store.go", "."), own("driver"), true},
		{in("memlock/store.go", "."), own("fence"), true},
		{in("memlock/store.go", "."), rootModule, false},
		{in("memlock/store.go", "."), own("drivertest"), false},
		{in("memlock/store.go", "."), own("sqllock"), false},
		{in("memlock/store_test.go", "."), own("drivertest"), true},
		{in("sqllock/sqlite.go", "."), "modernc.org/sqlite", false},
		{in("sqllock/sqlite_test.go", "."), "modernc.org/sqlite", false},
		{in("sqllock/backend.go", "."), own("internal/testserver"), false},
		{in("sqllock/internal/x/x.go", "."), own("sqllock/internal/y"), true},
		{in("redislock/backend.go", "redislock"), "github.com/redis/go-redis/v9", true},
		{in("redislock/backend.go", "redislock"), own("driver"), true},
		{in("redislock/backend.go", "redislock"), own("redislock/internal/slot"), true},
		{in("redislock/backend.go", "redislock"), rootModule, false},
		{in("redislock/backend.go", "redislock"), own("memlock"), false},
		{in("redislock/backend.go", "redislock"), own("drivertest"), false},
		{in("redislock/backend_test.go", "redislock"), own("drivertest"), true},
		{in("redislock/backend_test.go", "redislock"), rootModule, true},
		{in("redislock/backend_test.go", "redislock"), own("examples/nightly"), false},
		{in("redislock/keys.go", "redislock"), own("internal/escape"), true},
		{in("redislock/keys.go", "redislock"), own("internal/history"), false},
		{in("internal/escape/escape.go", "."), "encoding/json", true},
		{in("internal/escape/escape.go", "."), own("driver"), false},
		{in("client.go", "."), own("internal/escape"), false},
		{in("fence/token.go", "."), own("driver"), false},
		{in("cmd/fencelock/main.go", "cmd/fencelock"), own("redislock"), true},
		{in("cmd/fencelock/main.go", "cmd/fencelock"), own("cmd/fencelock/internal/child"), true},
		{in("cmd/fencelock/main.go", "cmd/fencelock"), own("verify/bench"), false},
		{in("verify/cmd/x.go", "verify"), own("verify/bench"), true},
		{in("verify/cmd/x.go", "verify"), own("cmd/fencelock"), false},
		{in("examples/nightly/main.go", "examples"), rootModule, true},
		{in("examples/cron/replica.go", "examples"), own("integrations/cronlock"), true},
		{in("examples/migration/pod.go", "examples/migration"), own("integrations/gooselock"), true},
		{in("examples/cron/replica.go", "examples"), own("verify/bench"), false},
		{in("verify/cmd/bench/main.go", "verify"), own("integrations/cronlock"), false},
	} {
		if got := breach(c.f, c.imports); (got == "") != c.allowed {
			t.Errorf("%s imports %s: %q", c.f.name, c.imports, got)
		}
	}
}

func TestRootModuleRequiresNothing(t *testing.T) {
	var mod struct {
		Module                                  struct{ Path string }
		Require, Replace, Exclude, Tool, Ignore []any
	}
	modFile(t, "go.mod", &mod)
	if mod.Module.Path != rootModule || len(mod.Require)+len(mod.Replace)+len(mod.Exclude)+len(mod.Tool) > 0 {
		t.Errorf("go.mod: %+v", mod)
	}
	if _, err := os.Stat("go.sum"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the root module needs no go.sum: %v", err)
	}
}

// Whoever uses the Redis backend never meets the other stores' clients in go.sum.
func TestRedisModuleCarriesNoOtherStoresClient(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	modFile(t, "redislock/go.mod", &mod)
	for _, r := range mod.Require {
		if !r.Indirect && r.Path != rootModule && r.Path != "github.com/redis/go-redis/v9" {
			t.Errorf("redislock/go.mod requires %s", r.Path)
		}
	}
	for _, name := range []string{"redislock/go.mod", "redislock/go.sum"} {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(strings.ToLower(string(text))) {
			for _, word := range []string{
				"etcd", "grpc", "zookeeper", "/zk", "pgx", "lib/pq", "mysql", "mariadb", "sqlite", "cobra",
				"sqllock", "etcdlock", "zklock",
			} {
				if strings.Contains(line, word) {
					t.Errorf("%s names %s: %s", name, word, strings.TrimSpace(line))
				}
			}
		}
	}
}

// modFile reads a go.mod; the go command does that without a network.
func modFile(t *testing.T, name string, into any) {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json", filepath.FromSlash(name))
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOTOOLCHAIN=local")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v\n%s", name, err, stderr.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}
