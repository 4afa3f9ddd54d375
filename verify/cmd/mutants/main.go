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
		err = o.run(ctx)
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

	root, scratch string
}

func (o options) run(ctx context.Context) error {
	begun := time.Now()
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fencelock/fencelock")
	out, err := list.Output()
	if err != nil {
		return err
	}
	o.root = strings.TrimSpace(string(out))
	if o.scratch, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(o.scratch)
	n := 0
	var wrong []string
	for _, m := range mutants.All() {
		told, err := o.lines()
		switch {
		case err != nil:
			return err
		case !o.only.MatchString(m.Name) && !o.only.MatchString(m.File), o.missing && told[m.Name] != "":
			continue
		case time.Since(begun) > o.within:
			return errors.New("there was no time for the rest")
		}
		n++
		line, err := o.try(ctx, m)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			wrong = append(wrong, err.Error())
			fmt.Println("WRONG    ", err)
		}
		if err := o.write(m.Name, line); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants:\n%s", len(wrong), n, strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were noticed\n", n)
	return nil
}

// try returns the line of a mutant. That nothing notices it is an error.
func (o options) try(ctx context.Context, m mutants.Mutant) (line string, err error) {
	v, err := mutants.Try(ctx, o.root, o.scratch, m, o.limit)
	if o.verbose {
		fmt.Println(v.Output)
	}
	switch {
	case err != nil:
		return "", err
	case !v.Caught:
		return "", fmt.Errorf("%s (%s) survives: nobody noticed", m.Name, m.File)
	}
	fmt.Printf("%6.1f s  %s: %s in %s\n", v.Took.Seconds(), m.Name, v.Failed, v.Test)
	return v.Line(), nil
}

func (o options) table() string { return filepath.Join(o.root, "verify", "mutants", "mutants.md") }

// lines reads the table. Another of these commands may have changed it.
func (o options) lines() (map[string]string, error) {
	old, err := os.ReadFile(o.table())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return mutants.Lines(string(old)), nil
}

// write puts the line of one mutant into the table, or takes it out if it is "".
func (o options) write(name, line string) error {
	all, err := o.lines()
	if err != nil {
		return err
	}
	all[name] = line
	return os.WriteFile(o.table(), []byte(mutants.Table(all)), 0o644)
}
