// Command bench compares fencelock with other lock libraries, and with the least that a
// lock can cost on each store, in one run on this machine. It starts all servers itself:
// redis-server, postgres, mariadbd, java for ZooKeeper; etcd is built from its sources.
//
//	go run ./cmd/bench                     all cases, in less than ten minutes
//	go run ./cmd/bench -short -rounds 1    a look, in two minutes
//	go run ./cmd/bench -case hot,keys -peer 'fencelock*' -peer 'raw*'
//	go run ./cmd/bench -tables bench/tables.md     and rewrites that page; then run ./cmd/pictures
//	go run ./cmd/bench -from run.json -tables bench/tables.md   the same, from an earlier run
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fencelock/fencelock/verify/bench"
)

func main() {
	bench.Child()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// flags are what the command line asks for.
type flags struct {
	bench.Options
	save, from, tables string
}

func parse() (*flags, error) {
	var f flags
	f.Log = os.Stderr
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
	flag.StringVar(&f.save, "o", "", "write what each library did in each round to a `file`, as JSON")
	flag.StringVar(&f.from, "from", "", "measure nothing: take the JSON of an earlier run from this `file`")
	flag.StringVar(&f.tables, "tables", "", "rewrite the tables of this `page`, bench/tables.md")
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measured, err := f.measure(ctx)
	if measured == nil {
		return err
	}
	if f.save != "" {
		text, failed := json.Marshal(measured)
		err = errors.Join(err, failed, os.WriteFile(f.save, text, 0o644))
	}
	measured.Print(os.Stdout)
	if f.tables != "" && err == nil {
		err = measured.Write(f.tables)
	}
	return err
}

// measure runs the cases, or reads an earlier run.
func (f *flags) measure(ctx context.Context) (*bench.Report, error) {
	if f.from != "" {
		text, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		var measured bench.Report
		return &measured, json.Unmarshal(text, &measured)
	}
	return bench.Run(ctx, f.Options)
}
