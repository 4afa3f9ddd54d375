// Command exported prints how many names a package exports: types, functions, methods, constants,
// variables, fields of structs and methods of interfaces.
//
//	go run tools/exported/main.go ./driver     prints the number
//	go run tools/exported/main.go -v ./driver    prints the names too
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print the names")
	flag.Parse()
	for _, dir := range flag.Args() {
		names, err := exported(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if *verbose {
			fmt.Println(strings.Join(names, "\n"))
		}
		fmt.Println(len(names), dir)
	}
}

// exported returns the names that the package in dir exports on any platform, sorted.
func exported(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			names = append(names, declared(d)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a platform's file may declare a name again
}

// declared returns the exported names of one declaration.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if receiver := receiverOf(d); ast.IsExported(strings.TrimSuffix(receiver, ".")) || receiver == "" {
			names = public(receiver, d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				names = append(names, public("", s.Names...)...)
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(append(names, s.Name.Name), inside(s)...)
				}
			}
		}
	}
	return names
}

// receiverOf returns "T." for a method of T, and "" for a function.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "."
		}
	}
}

// inside returns the exported fields or methods that the type itself declares. An embedded type counts
// where it is declared.
func inside(s *ast.TypeSpec) (names []string) {
	var list *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		names = append(names, public(s.Name.Name+".", f.Names...)...)
	}
	return names
}

func public(prefix string, ids ...*ast.Ident) (names []string) {
	for _, id := range ids {
		if id.IsExported() {
			names = append(names, prefix+id.Name)
		}
	}
	return names
}
