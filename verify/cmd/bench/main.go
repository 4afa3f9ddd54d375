// Command bench compares fencelock with other lock libraries, and with the least that a
// lock can cost on each store, in one run on this machine. It starts all servers itself:
// redis-server, postgres, mariadbd, java for ZooKeeper; etcd is built from its sources.
//
//	go run ./cmd/bench                     all cases, in less than ten minutes
//	go run ./cmd/bench -short -rounds 1    a look, in two minutes
//	go run ./cmd/bench -case hot,keys -peer 'fencelock*' -peer 'raw*'
//	go run ./cmd/bench -docs ../docs       and rewrites docs/performance.md and its figures
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
	"runtime/pprof"
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

func run() (err error) {
	var cases, peers []string
	for _, c := range bench.Cases() {
		cases = append(cases, fmt.Sprintf("  %-10s %s", c.Name, c.What))
	}
	for _, p := range bench.Peers() {
		peers = append(peers, "  "+p.Name)
	}

	o := bench.Options{Out: os.Stdout, Log: os.Stderr}
	flag.Func("case", "run only these `cases`, by commas:\n"+strings.Join(cases, "\n"), func(s string) error {
		o.Cases = append(o.Cases, strings.Split(s, ",")...)
		return nil
	})
	flag.Func("peer", "measure only these `libraries`; may be repeated, and end with a star:\n"+strings.Join(peers, "\n"), func(s string) error {
		o.Peers = append(o.Peers, s)
		return nil
	})
	flag.IntVar(&o.Rounds, "rounds", 5, "how many `rounds` to take the median of")
	flag.BoolVar(&o.Short, "short", false, "shorter turns and fewer sizes")
	asJSON := flag.Bool("json", false, "print a line of JSON for each library, round and case, instead of tables")
	lines := flag.String("o", "", "write these lines to a `file` as well")
	from := flag.String("from", "", "measure nothing: take the lines of an earlier run from this `file`")
	docs := flag.String("docs", "", "rewrite performance.md and its figures in this `folder`")
	compare := flag.String("compare", "", "compare the Go benchmarks with those of this `commit` or tag; \"last\" is the last tag, or the first commit")
	profile := flag.String("cpuprofile", "", "write a profile to this `file`; its samples are labelled with case and peer")
	child := flag.Bool("child", false, "what a run starts more processes with")
	flag.Parse()
	if *child {
		return bench.Child(os.Stdin, os.Stdout)
	}
	if flag.NArg() > 0 || o.Rounds < 1 {
		return errors.New("there are no arguments, and at least one round; see -help")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *compare != "" {
		return compareWith(ctx, *compare, max(o.Rounds, 6)) // benchstat wants as many
	}

	if *asJSON {
		o.Out, o.Lines = nil, os.Stdout
	}
	if *lines != "" {
		f, err := os.Create(*lines)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		o.Lines = f
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Command = []string{self, "-child"}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	var measured *bench.Measured
	if *from != "" {
		f, err := os.Open(*from)
		if err != nil {
			return err
		}
		defer f.Close()
		if measured, err = bench.Read(f); err != nil {
			return fmt.Errorf("%s: %w", *from, err)
		}
	} else if measured, err = bench.Run(ctx, o); err != nil {
		return err
	}
	if !*asJSON {
		measured.PrintTargets(os.Stdout)
	}
	if *docs != "" {
		return measured.Write(*docs)
	}
	return nil
}
