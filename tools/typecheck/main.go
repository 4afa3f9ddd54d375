// Command typecheck checks the types of packages for other platforms, tests included, from the sources alone. go vet
// and go build compile all dependencies for each platform first. Functions of other modules are taken as they are
// declared. Kubernetes checks its platforms the same way.
//
//	go run ./typecheck [-tags TAGS] [-tests] FOLDER PLATFORM... -- PATTERN...
//
// A PLATFORM is GOOS/GOARCH. GOWORK=off checks a module without the workspace, as its users have it: what its go.mod
// or go.sum lacks is an error too.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	tags := flag.String("tags", "", "build tags")
	tests := flag.Bool("tests", false, "check tests as well")
	flag.Parse()
	folder, rest := flag.Arg(0), flag.Args()
	split := slices.Index(rest, "--")
	if split < 2 || split == len(rest)-1 {
		fmt.Fprintln(os.Stderr, "typecheck [-tags TAGS] [-tests] FOLDER PLATFORM... -- PATTERN...")
		os.Exit(2)
	}
	failed := false
	for _, platform := range rest[1:split] {
		found, err := check(folder, platform, *tags, *tests, rest[split+1:])
		for _, f := range found {
			fmt.Fprintf(os.Stderr, "%s: %s\n", platform, f)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
		}
		failed = failed || err != nil || len(found) > 0
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what is wrong with the packages in and below folder that match the patterns.
func check(folder, platform, tags string, tests bool, patterns []string) ([]string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("%q is not GOOS/GOARCH", platform)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
		Dir: folder, Tests: tests, BuildFlags: []string{"-tags=" + tags},
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution|parser.AllErrors)
			if file != nil && !below(folder, name) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return nil, err
	}
	if len(loaded) == 0 {
		return nil, errors.New("no package matches")
	}
	found := map[string]bool{}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		ours := slices.ContainsFunc(p.GoFiles, func(name string) bool { return below(folder, name) })
		for _, e := range p.Errors {
			if ours || e.Kind != packages.TypeError { // without bodies, others have imports that they do not use
				found[e.Error()] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(found)), nil
}

// below reports whether a file is in the folder or below it.
func below(folder, name string) bool {
	return strings.HasPrefix(name, folder+string(filepath.Separator))
}

// dropBodies leaves the declarations of functions.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
