// Command mutants breaks the library line by line, and writes down in mutants/mutants.md
// which test noticed.
//
//	go run ./cmd/mutants               all
//	go run ./cmd/mutants -only redis   those of which name or file match; the other lines stay
//	go run ./cmd/mutants -missing      those that have no line yet
//	go run ./cmd/mutants -v -only …    and shows what the tests printed
//
// Two may run at once, on different mutants. It ends with 1 if one was noticed by nobody,
// or its text is not in its file any longer.
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

func main() {
	var o options
	only := flag.String("only", "", "run those of which the name or the file matches this pattern, whatever the case")
	flag.BoolVar(&o.missing, "missing", false, "run those that have no line in the table")
	flag.BoolVar(&o.verbose, "v", false, "show what the tests print")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "how long one call of go test may run")
	flag.DurationVar(&o.within, "within", 24*time.Hour, "begin none after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.only, err = regexp.Compile("(?i)" + *only); err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	only             *regexp.Regexp
	missing, verbose bool
	limit, within    time.Duration
}

func run(ctx context.Context, o options) error {
	begun := time.Now()
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
	var told map[string]string
	n := 0
	var wrong []string
	for _, m := range mutants.All() {
		if told, err = lines(root); err != nil { // anew: another of these may be at work
			return err
		}
		switch {
		case !o.only.MatchString(m.Name) && !o.only.MatchString(m.File), o.missing && told[m.Name] != "":
			continue
		case time.Since(begun) > o.within:
			return errors.New("there was no time for the rest")
		}
		n++
		v, err := mutants.Try(ctx, root, scratch, m, o.limit)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if o.verbose {
			fmt.Println(v.Output)
		}
		line := ""
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
			fmt.Printf("WRONG     %s: %v\n", m.Name, err)
		case !v.Caught:
			wrong = append(wrong, m.Name+": nobody noticed")
			fmt.Printf("SURVIVES  %s (%s)\n", m.Name, m.File)
		default:
			fmt.Printf("%6.1f s  %s: %s in %s\n", v.Took.Seconds(), m.Name, v.Failed, v.Test)
			line = v.Line()
		}
		if err := write(root, m.Name, line); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants:\n%s", len(wrong), n, strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were noticed\n", n)
	return nil
}

func table(root string) string { return filepath.Join(root, "verify", "mutants", "mutants.md") }

// lines reads the table.
func lines(root string) (map[string]string, error) {
	old, err := os.ReadFile(table(root))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return mutants.Lines(string(old)), nil
}

// write puts the line of one mutant into the table, or takes it out if it is "".
func write(root, name, line string) error {
	all, err := lines(root) // anew: another of these may be at work
	if err != nil {
		return err
	}
	all[name] = line
	return os.WriteFile(table(root), []byte(mutants.Table(all)), 0o644)
}
