// Command mutants breaks the library line by line, and writes down in mutants/mutants.md
// which test noticed.
//
//	go run ./cmd/mutants               all
//	go run ./cmd/mutants -only redis   those of which name or file match; the other lines stay
//	go run ./cmd/mutants -missing      those that have no line yet
//
// Two may run at once, on different mutants. The exit code is 1 if no test notices a mutant,
// or its text is no longer in its file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/verify/mutants"
)

// limit is how long one call of go test may run: a test of the command waits three minutes before it fails.
const limit = 5 * time.Minute

func main() {
	only := flag.String("only", "", "run those of which the name or the file matches this pattern, whatever the case")
	missing := flag.Bool("missing", false, "run those that have no line in the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pattern, err := regexp.Compile("(?i)" + *only)
	if err == nil {
		err = run(ctx, pattern, *missing)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only *regexp.Regexp, missing bool) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fencelock/fencelock")
	out, err := list.Output()
	if err != nil {
		return err
	}
	root := strings.TrimSpace(string(out))
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	table := filepath.Join(root, "verify", "mutants", "mutants.md")
	n, wrong := 0, 0
	for _, m := range mutants.All() {
		lines, err := read(table)
		switch {
		case err != nil:
			return err
		case !only.MatchString(m.Name) && !only.MatchString(m.File), missing && lines[m.Name] != "":
			continue
		}
		n++
		line, err := try(ctx, root, scratch, m)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			wrong++
			fmt.Println("WRONG    ", err)
		}
		if lines, err = read(table); err != nil { // another of these commands may have written it
			return err
		}
		lines[m.Name] = line
		if err := os.WriteFile(table, []byte(mutants.Table(lines)), 0o644); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants are wrong", wrong, n)
	}
	fmt.Printf("all %d mutants were noticed\n", n)
	return nil
}

// try returns the line of a mutant. A mutant that no test notices is an error.
func try(ctx context.Context, root, scratch string, m mutants.Mutant) (line string, err error) {
	v, err := mutants.Try(ctx, root, scratch, m, limit)
	switch {
	case err != nil:
		return "", err
	case v.Failed == "":
		return "", fmt.Errorf("%s (%s) survives: no test noticed; the last one printed\n%s", m.Name, m.File, v.Output)
	}
	fmt.Printf("%6.1f s  %s: %s in %s\n", v.Took.Seconds(), m.Name, v.Failed, v.Test)
	return v.Line(), nil
}

// read reads the table: the lines by the names of the mutants.
func read(table string) (map[string]string, error) {
	text, err := os.ReadFile(table)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return mutants.Lines(string(text)), nil
}
