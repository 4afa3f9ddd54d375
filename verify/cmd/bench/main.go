// Command bench compares fencelock with other lock libraries, and with the least that a
// lock can cost on each store, in one run on this machine. It starts all servers itself:
// redis-server, postgres, mariadbd, java for ZooKeeper; etcd is built from its sources.
//
//	go run ./cmd/bench                     all cases, in less than ten minutes
//	go run ./cmd/bench -short -rounds 1    a look, in two minutes
//	go run ./cmd/bench -case hot,keys -peer 'fencelock*' -peer 'raw*'
//	go run ./cmd/bench -docs ../docs       and rewrites docs/performance.md
//	go run ./cmd/bench -from run.jsonl -docs ../docs   the same, from an earlier run
//	go run ./cmd/bench -compare v0.1.0     Go benchmarks of this tree against that one
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fencelock/fencelock/verify/bench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// flags are what the command line asks for.
type flags struct {
	bench.Options
	child, json                bool
	lines, from, docs, compare string
}

func parse() (*flags, error) {
	var f flags
	f.Out, f.Log = os.Stdout, os.Stderr
	var cases, peers []string
	for _, c := range bench.Cases() {
		cases = append(cases, fmt.Sprintf("  %-10s %s", c.Name, c.What))
	}
	for _, p := range bench.Peers() {
		peers = append(peers, "  "+p.Name)
	}
	flag.Func("case", "run only these `cases`, by commas:\n"+strings.Join(cases, "\n"), func(s string) error {
		f.Cases = append(f.Cases, strings.Split(s, ",")...)
		return nil
	})
	help := "measure only these `libraries`; may be repeated, and end with a star:\n" + strings.Join(peers, "\n")
	flag.Func("peer", help, func(s string) error {
		f.Peers = append(f.Peers, s)
		return nil
	})
	flag.IntVar(&f.Rounds, "rounds", 5, "how many `rounds` to take the median of")
	flag.BoolVar(&f.Short, "short", false, "shorter turns")
	flag.BoolVar(&f.json, "json", false, "print a line of JSON for each library, round and case, instead of tables")
	flag.StringVar(&f.lines, "o", "", "write these lines to a `file` as well")
	flag.StringVar(&f.from, "from", "", "measure nothing: take the lines of an earlier run from this `file`")
	flag.StringVar(&f.docs, "docs", "", "rewrite performance.md in this `folder`")
	flag.StringVar(&f.compare, "compare", "", "compare the Go benchmarks with those of this `commit` or tag; "+
		"\"last\" is the last tag, or the first commit")
	flag.BoolVar(&f.child, "child", false, "what a run starts more processes with")
	flag.Parse()
	if flag.NArg() > 0 || f.Rounds < 1 {
		return nil, errors.New("there are no arguments, and at least one round; see -help")
	}
	return &f, nil
}

func run() error {
	f, err := parse()
	if err != nil {
		return err
	}
	if f.child {
		return bench.Child(os.Stdin, os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.compare != "" {
		return compareWith(ctx, f.compare, max(f.Rounds, 6)) // benchstat wants as many
	}
	measured, err := f.measure(ctx)
	if err != nil {
		return err
	}
	if !f.json {
		measured.PrintTargets(os.Stdout)
	}
	if f.docs != "" {
		return measured.Write(filepath.Join(f.docs, "performance.md"))
	}
	return nil
}

// measure runs the cases, or reads an earlier run.
func (f *flags) measure(ctx context.Context) (*bench.Report, error) {
	if f.from != "" {
		file, err := os.Open(f.from)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return bench.Read(file)
	}
	if f.json {
		f.Out, f.Lines = nil, os.Stdout
	}
	if f.lines != "" {
		file, err := os.Create(f.lines)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		f.Lines = file
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f.Command = []string{self, "-child"}
	return bench.Run(ctx, f.Options)
}
