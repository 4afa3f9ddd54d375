// Command realtime holds tests to the rule that none measures the machine. It reports each
//
//   - time.Sleep, and each <-time.After outside of a select, that is not in a synctest bubble: wait for
//     a condition instead, as with testserver.Eventually;
//   - upper bound in milliseconds of real time: a busy machine is late by more than that. Assert ten
//     times the longest thing that must happen, or count requests.
//
// A line that must have it says why, in a comment behind it: "// real time: …".
//
//	go run ./realtime FOLDER
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const excuse = "// real time: "

func main() {
	found, err := check(os.Args[1])
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if err != nil || len(found) > 0 {
		fmt.Fprintln(os.Stderr, "tests that measure the machine; see tools/realtime/main.go", err)
		os.Exit(1)
	}
}

// check returns what it reports of the tests below root.
func check(root string) (found []string, err error) {
	fset := token.NewFileSet()
	packages, err := parse(fset, root)
	for _, files := range packages {
		virtual := inBubbles(files)
		for _, f := range files {
			excused := excuses(fset, f)
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil || virtual[fn.Name.Name] {
					continue
				}
				for _, p := range realTime(fn.Body) {
					if at := fset.Position(p.Pos()); !excused[at.Line] {
						found = append(found, fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, p.what))
					}
				}
			}
		}
	}
	return found, err
}

// parse returns the files of tests below root, by folder.
func parse(fset *token.FileSet, root string) (map[string][]*ast.File, error) {
	packages := map[string][]*ast.File{}
	return packages, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && left[d.Name()]:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		packages[filepath.Dir(name)] = append(packages[filepath.Dir(name)], f)
		return err
	})
}

// left are folders that are not read.
var left = map[string]bool{"node_modules": true, "testdata": true, ".git": true}

// excuses returns the lines that a comment excuses.
func excuses(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, excuse) {
				lines[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// inBubbles returns the names of the functions of a package that run in virtual time: those that
// make a bubble, those that are called by such a function, and those that call one which takes a
// function for its bubble.
func inBubbles(files []*ast.File) map[string]bool {
	calls := namesIn(files)
	virtual := map[string]bool{"synctest.Test": true}
	grow(virtual, func(name string) bool {
		for helper := range virtual {
			if calls[name][helper] {
				return true
			}
		}
		return false
	}, calls)
	grow(virtual, func(name string) bool {
		for by := range virtual {
			if calls[by][name] {
				return true
			}
		}
		return false
	}, calls)
	return virtual
}

// grow adds each function to set that belongs to it, until none does.
func grow(set map[string]bool, belongs func(name string) bool, all map[string]map[string]bool) {
	for grown := true; grown; {
		grown = false
		for name := range all {
			if !set[name] && belongs(name) {
				set[name], grown = true, true
			}
		}
	}
}

// namesIn returns for each function the names in its body.
func namesIn(files []*ast.File) map[string]map[string]bool {
	names := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if names[fn.Name.Name] == nil {
				names[fn.Name.Name] = map[string]bool{}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					names[fn.Name.Name][text(n)] = true
				case *ast.Ident:
					names[fn.Name.Name][n.Name] = true
				}
				return true
			})
		}
	}
	return names
}

type problem struct {
	ast.Node
	what string
}

// realTime returns what a function should not do in real time.
func realTime(body *ast.BlockStmt) (all []problem) {
	inSelect := map[ast.Node]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CommClause); ok && c.Comm != nil {
			ast.Inspect(c.Comm, func(n ast.Node) bool { inSelect[n] = true; return true })
		}
		switch {
		case sleeps(n) && !inSelect[n]:
			all = append(all, problem{n, "sleeps: wait for a condition"})
		case bounds(n):
			all = append(all, problem{n, "has an upper bound in milliseconds"})
		}
		return true
	})
	return all
}

// sleeps reports whether n is time.Sleep or <-time.After.
func sleeps(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.UnaryExpr:
		call, ok := n.X.(*ast.CallExpr)
		return ok && n.Op == token.ARROW && text(call.Fun) == "time.After"
	case *ast.CallExpr:
		return text(n.Fun) == "time.Sleep"
	}
	return false
}

// bounds reports whether n is an upper bound in milliseconds.
func bounds(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := text(n.Fun)
		return len(n.Args) == 3 && inMilliseconds(n.Args[2]) && strings.HasSuffix(strings.ToLower(name), "tookatmost")
	case *ast.BinaryExpr:
		switch n.Op {
		case token.GTR, token.GEQ:
			return inMilliseconds(n.Y)
		case token.LSS, token.LEQ:
			return inMilliseconds(n.X)
		}
	}
	return false
}

// inMilliseconds reports whether an expression is a number of milliseconds, or of something shorter.
func inMilliseconds(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.MUL {
		return false
	}
	switch unit := text(b.Y); unit {
	case "time.Millisecond", "time.Microsecond", "time.Nanosecond":
		return true
	}
	return false
}

func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}
