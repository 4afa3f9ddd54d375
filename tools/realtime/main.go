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
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		packages[filepath.Dir(name)] = append(packages[filepath.Dir(name)], f)
		return err
	})
	for _, files := range packages {
		virtual := inBubbles(files)
		for _, f := range files {
			excused := excuses(fset, f)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !virtual[fn.Name.Name] {
					for _, p := range realTime(fn.Body) {
						if at := fset.Position(p.Pos()); !excused[at.Line] {
							found = append(found, fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, p.what))
						}
					}
				}
			}
		}
	}
	return found, err
}

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
	calls, helpers := map[string]map[string]bool{}, map[string]bool{"synctest.Test": true}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if calls[fn.Name.Name] == nil {
				calls[fn.Name.Name] = map[string]bool{}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						calls[fn.Name.Name][x.Name+"."+n.Sel.Name] = true
					}
					calls[fn.Name.Name][n.Sel.Name] = true
				case *ast.Ident:
					calls[fn.Name.Name][n.Name] = true
				}
				return true
			})
		}
	}
	for grown := true; grown; {
		grown = false
		for name, of := range calls {
			for helper := range helpers {
				if of[helper] && !helpers[name] {
					helpers[name], grown = true, true
				}
			}
		}
	}
	virtual := helpers
	for grown := true; grown; {
		grown = false
		for name := range virtual {
			for called := range calls[name] {
				if calls[called] != nil && !virtual[called] {
					virtual[called], grown = true, true
				}
			}
		}
	}
	return virtual
}

type problem struct {
	ast.Node
	what string
}

// realTime returns what a function should not do in real time.
func realTime(body *ast.BlockStmt) (all []problem) {
	inSelect := map[ast.Node]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause:
			if n.Comm != nil {
				ast.Inspect(n.Comm, func(n ast.Node) bool { inSelect[n] = true; return true })
			}
		case *ast.UnaryExpr:
			if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.ARROW && !inSelect[n] && text(call.Fun) == "time.After" {
				all = append(all, problem{n, "sleeps: wait for a condition"})
			}
		case *ast.CallExpr:
			switch {
			case text(n.Fun) == "time.Sleep":
				all = append(all, problem{n, "sleeps: wait for a condition"})
			case text(n.Fun) == "tookAtMost" && len(n.Args) == 3 && inMilliseconds(n.Args[2]):
				all = append(all, problem{n, "has an upper bound in milliseconds"})
			}
		case *ast.BinaryExpr:
			if (n.Op == token.GTR || n.Op == token.GEQ) && inMilliseconds(n.Y) ||
				(n.Op == token.LSS || n.Op == token.LEQ) && inMilliseconds(n.X) {
				all = append(all, problem{n, "has an upper bound in milliseconds"})
			}
		}
		return true
	})
	return all
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
