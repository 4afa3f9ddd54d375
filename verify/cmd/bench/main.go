// Command bench compares fencelock with other lock libraries and with the least
// that a lock on Redis can cost, in one run on this machine. It needs redis-server.
//
//	go run ./cmd/bench                     all cases, in less than ten minutes
//	go run ./cmd/bench -short              about a minute
//	go run ./cmd/bench -case hot,keys -peer 'fencelock*'
package main

import (
	"context"
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
	list := func(to *[]string) func(string) error {
		return func(s string) error {
			*to = append(*to, strings.Split(s, ",")...)
			return nil
		}
	}
	flag.Func("case", "run only these `cases`, by commas:\n"+strings.Join(cases, "\n"), list(&o.Cases))
	flag.Func("peer", "measure only these `libraries` and those that ratios are made with; may be repeated, and end\nwith a star:\n"+
		strings.Join(peers, "\n"), func(s string) error {
		o.Peers = append(o.Peers, s)
		return nil
	})
	flag.IntVar(&o.Rounds, "rounds", 5, "how many `rounds` to take the median of")
	flag.BoolVar(&o.Short, "short", false, "shorter turns and fewer sizes, about a minute")
	flag.BoolVar(&o.JSON, "json", false, "print a line of JSON for each library, round and case")
	profile := flag.String("cpuprofile", "", "write a profile to this `file`; its samples are labelled with case and peer")
	child := flag.Bool("child", false, "what a run starts more processes with")
	flag.Parse()
	if *child {
		return bench.Child(os.Stdin, os.Stdout)
	}
	if flag.NArg() > 0 || o.Rounds < 1 {
		return fmt.Errorf("there are no arguments, and at least one round; see -help")
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return bench.Run(ctx, o)
}
