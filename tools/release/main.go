// Command release makes a release of this repository, or rehearses one. It pushes nothing.
//
//	go run . v0.9.0                  into dist/v0.9.0, for all platforms
//	go run . -rehearse v0.9.0        for this platform, in a temporary folder, and tries it out
//
// A release is a function of the commit: made twice, it gives equal sums.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	rehearse := flag.Bool("rehearse", false, "build for this platform only, and try out what was built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rehearse, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rehearse bool, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the version, such as v0.9.0; there are %d arguments", len(args))
	}
	source, err := output(ctx, command{name: "git", args: []string{"rev-parse", "--show-toplevel"}})
	if err != nil {
		return err
	}
	if rehearse {
		return rehearsal(ctx, source, args[0])
	}
	r, err := newRelease(ctx, source, filepath.Join(source, "dist", args[0]), args[0])
	if err != nil {
		return err
	}
	if err := r.make(ctx, platforms); err != nil {
		return err
	}
	fmt.Printf("\nNothing was pushed. To publish, push the tags, then upload %s:\n  git -C %s push --tags <remote>\n",
		r.files(), r.clone())
	return nil
}
