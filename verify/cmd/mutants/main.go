// Command mutants breaks the library line by line, and writes down which test noticed.
//
//	go run ./cmd/mutants            all, and the table mutants/mutants.md
//	go run ./cmd/mutants -only redis   those whose file or name has the text; no table
//
// It ends with 1 if one was noticed by nobody.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelock/fencelock/verify/mutants"
)

func main() {
	only := flag.String("only", "", "run those whose file or name contains this, and write no table")
	limit := flag.Duration("limit", 2*time.Minute, "how long one call of go test may run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, limit time.Duration) error {
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
	var all []mutants.Verdict
	var wrong []string
	for _, m := range mutants.All() {
		if !strings.Contains(m.Name, only) && !strings.Contains(m.File, only) {
			continue
		}
		v, err := mutants.Try(ctx, root, scratch, m, limit)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			wrong = append(wrong, err.Error())
			fmt.Printf("WRONG     %s: %v\n", m.Name, err)
		case !v.Caught:
			wrong = append(wrong, m.Name+": nobody noticed")
			fmt.Printf("SURVIVES  %s (%s)\n", m.Name, m.File)
		default:
			fmt.Printf("%6.1f s  %s: %s in %s\n", v.Took.Seconds(), m.Name, v.Failed, v.Test)
		}
		all = append(all, v)
	}
	if only == "" {
		if err := os.WriteFile(filepath.Join(root, "verify", "mutants", "mutants.md"), []byte(mutants.Table(all)), 0o644); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d mutants:\n%s", len(wrong), len(all), strings.Join(wrong, "\n"))
	}
	fmt.Printf("all %d mutants were noticed\n", len(all))
	return nil
}
