package fencelock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exported returns the exported names of the packages that pages name, methods and fields among them, by
// the last element of the package's path.
func exported(t *testing.T) map[string]map[string]bool {
	folders := map[string]string{".": "fencelock"}
	for _, dir := range []string{
		"redislock", "sqllock", "etcdlock", "zklock", "s3lock", "natslock", "quorumlock", "memlock", "fence", "elect", "history", "doctor",
		"storeurl", "httplock", "promfence", "otelfence", "driver", "driver/ballot", "drivertest/faulty",
	} {
		folders[dir] = filepath.Base(dir)
	}
	names := map[string]map[string]bool{}
	for _, f := range repository(t) {
		of := folders[f.dir]
		if of == "" || f.test {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(f.name), nil, parser.SkipObjectResolution)
		must(t, err)
		if names[of] == nil {
			names[of] = map[string]bool{}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[of][n.Name.Name] = true
				return false // names in a body are not of the API
			case *ast.TypeSpec:
				names[of][n.Name.Name] = true
			case *ast.ValueSpec, *ast.Field:
				for _, name := range namesOf(n) {
					names[of][name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

func namesOf(n ast.Node) []*ast.Ident {
	if f, ok := n.(*ast.Field); ok {
		return f.Names
	}
	return n.(*ast.ValueSpec).Names
}

// What a page calls redislock.Options.Replicas is in that package.
func TestPagesNameTheAPIAsItIs(t *testing.T) {
	names := exported(t)
	var packages []string
	for p := range names {
		packages = append(packages, p)
	}
	called := regexp.MustCompile(`\b(` + strings.Join(packages, "|") + `)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	found := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "docs/adr/") { // they name what is gone
			continue
		}
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range called.FindAllStringSubmatch(string(text), -1) {
			found++
			if !names[m[1]][m[2]] || m[3] != "" && !names[m[1]][m[3]] {
				t.Errorf("%s names %s, which is not exported", page, m[0])
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names were found; this test reads pages wrongly", found)
	}
}
