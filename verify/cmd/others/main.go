// Command others plays the schedules of package others with each library, and writes the page
// about it. make others runs it among the servers and libraries of Debian.
//
//	go run ./cmd/others                           everything; it takes a quarter of an hour
//	go run ./cmd/others -only redis -schedule cut libraries and schedules whose names have these words
//	go run ./cmd/others -page                     only the page, of the results that were kept
//	go run ./cmd/others adapter NAME TTL_MS HOST:PORT   one of the adapters in Go
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/verify/others"
	"github.com/fencelock/fencelock/verify/others/adapters"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "others:", err)
		os.Exit(1)
	}
}

func run() error {
	var o others.Options
	flag.StringVar(&o.Only, "only", "", "the `libraries` whose names have this text, by commas")
	flag.StringVar(&o.Schedule, "schedule", "", "the `schedules` whose names have this text, by commas")
	flag.StringVar(&o.Dir, "dir", ".", "the `folder` of the module verify")
	flag.IntVar(&o.Parallel, "parallel", 4, "how many `libraries` play at a time, each on a server of its own")
	page := flag.Bool("page", false, "write the page of the results that were kept, and play nothing")
	flag.Parse()
	if flag.Arg(0) == "adapter" && flag.NArg() == 4 {
		ms, err := strconv.Atoi(flag.Arg(2))
		if err != nil {
			return err
		}
		return adapters.Run(flag.Arg(1), flag.Arg(3), time.Duration(ms)*time.Millisecond, os.Stdin, os.Stdout)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown arguments: see -help")
	}
	o.Out = os.Stdout
	if !*page {
		if err := others.Play(o); err != nil {
			return err
		}
	}
	return others.WritePage(o.Dir)
}
