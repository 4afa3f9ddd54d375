// Command mutants breaks the library line by line, and writes down which test noticed, in
// mutants/mutants.md.
//
//	go run ./cmd/mutants               all
//	go run ./cmd/mutants -only redis   those whose file or name has the text; the other lines stay
//	go run ./cmd/mutants -missing      those that have no line yet
//
// It ends with 1 if one was noticed by nobody.
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
	"strings"
	"time"

	"github.com/fencelock/fencelock/verify/mutants"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "run those whose file or name contains this")
	flag.BoolVar(&o.missing, "missing", false, "run those that have no line in the table")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "how long one call of go test may run")
	flag.DurationVar(&o.within, "within", 24*time.Hour, "begin none after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	only          string
	missing       bool
	limit, within time.Duration
}

func run(ctx context.Context, o options) error {
	begun := time.Now()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fencelock/fencelock").Output()
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
	old, err := os.ReadFile(table)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := mutants.Lines(string(old))
	n := 0
	var wrong []string
	for _, m := range mutants.All() {
		switch {
		case !strings.Contains(m.Name, o.only) && !strings.Contains(m.File, o.only), o.missing && lines[m.Name] != "":
			continue
		case time.Since(begun) > o.within:
			return errors.New("there was no time for the rest")
		}
		n++
		v, err := mutants.Try(ctx, root, scratch, m, o.limit)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			wrong = append(wrong, err.Error())
			fmt.Printf("WRONG     %s: %v\n", m.Name, err)
			delete(lines, m.Name)
		case !v.Caught:
			wrong = append(wrong, m.Name+": nobody noticed")
			fmt.Printf("SURVIVES  %s (%s)\n", m.Name, m.File)
			delete(lines, m.Name)
		default:
			fmt.Printf("%6.1f s  %s: %s in %s\n", v.Took.Seconds(), m.Name, v.Failed, v.Test)
			lines[m.Name] = v.Line()
		}
		if err := os.WriteFile(table, []byte(mutants.Table(lines)), 0o644); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants:\n%s", len(wrong), n, strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were noticed\n", n)
	return nil
}
