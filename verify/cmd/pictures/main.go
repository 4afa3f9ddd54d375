// Command pictures draws the pictures of the documentation, in light and dark, in English and
// Chinese, as SVG. The terminals show a real run of the command, which takes four seconds.
// The bars are figures of docs/performance.md.
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

// docs is the documentation, seen from the module verify.
var docs = filepath.Join("..", "docs")

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
}

var pictures = []picture{
	{"late-write", 600, 452, drawLateWrite},
	{"lease", 600, 292, drawLease},
	{"hand-off", 600, 330, drawHandOff},
	{"failover", 600, 470, drawFailover},
	{"choose", 600, 508, drawChoose},
}

// drawings returns the text of each file but the terminals: NAME[-zh]-THEME.svg.
func drawings() (map[string]string, error) {
	figures, err := comparisons()
	if err != nil {
		return nil, err
	}
	costs, err := stores()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, p := range append(pictures, speed(figures), drawStores(costs)) {
		for _, theme := range themes {
			for _, chinese := range []bool{false, true} {
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
