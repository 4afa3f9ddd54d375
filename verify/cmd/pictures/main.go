// Command pictures draws the pictures of the documentation, in light and dark, in English and
// Chinese, as SVG. The terminals show a real run of the command, which takes four seconds.
// The bars are figures of bench/tables.md, which make bench writes, and the heat map is of
// others/results.jsonl, which make others writes.
//
//	cd verify && go run ./cmd/pictures              writes ../docs/images
//	cd verify && go run ./cmd/pictures -out FOLDER  writes them elsewhere
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// verify is the folder of the module, and docs that of the documentation.
var (
	verify = "."
	docs   = filepath.Join("..", "docs")
)

func main() {
	out := flag.String("out", filepath.Join(docs, "images"), "the `folder` to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	files, err := drawings()
	if err != nil {
		return err
	}
	lines, err := record(ctx)
	if err != nil {
		return err
	}
	for name, text := range terminals(lines) {
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A picture draws itself on a canvas of its size.
type picture struct {
	name          string
	width, height int
	draw          func(c *canvas)
	english       bool // only English pages show it
}

var pictures = []picture{
	{name: "late-write", width: 600, height: 452, draw: drawLateWrite},
	{name: "lease", width: 600, height: 292, draw: drawLease},
	{name: "hand-off", width: 600, height: 330, draw: drawHandOff},
	{name: "failover", width: 600, height: 470, draw: drawFailover},
	{name: "choose", width: 600, height: 508, draw: drawChoose},
	{name: "bridge", width: 660, height: 290, draw: drawBridge, english: true},
}

// drawings returns the text of each file but the terminals: NAME[-zh]-THEME.svg.
func drawings() (map[string]string, error) {
	measured, err := charts()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, p := range append(pictures, measured...) {
		for _, theme := range themes {
			for _, chinese := range []bool{false, true} {
				if chinese && p.english {
					continue
				}
				c := &canvas{theme: theme, chinese: chinese, width: p.width, height: p.height}
				p.draw(c)
				files[fileName(p.name, theme, chinese)] = c.svg()
			}
		}
	}
	return files, nil
}

func fileName(name string, t theme, chinese bool) string {
	if chinese {
		name += "-zh"
	}
	return name + "-" + t.name + ".svg"
}
