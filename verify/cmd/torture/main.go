// Command torture uses locks from many processes at once, breaks what they live on, and
// judges what they saw. It starts the servers itself, or takes those of a URL.
//
//	go run ./cmd/torture -start redis -for 60s
//	go run ./cmd/torture -start all -for 1h               one store after the other, in equal parts
//	go run ./cmd/torture -url postgres://me@host:5432/db -faults kill,pause,cut,silence
//	go run ./cmd/torture -start redis -service redis+redsync   the locks of another library
//	go run ./cmd/torture -judge DIR -service redis             a history that was kept
//
// It ends with 0 if nothing was breached, with 1 if something was, and with 2 if it
// could not run. The histories are kept; the folder is named in the end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/torture"
	"github.com/fencelock/fencelock/verify/traffic"
)

func main() {
	traffic.Worker(traffic.Schemes())
	breached, err := run()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	case breached:
		os.Exit(1)
	}
}

// parse reads the command line. judge is the folder of a history that is only to be judged.
func parse() (o torture.Options, judge string) {
	o.Out, o.Table = os.Stdout, traffic.Schemes()
	flag.StringVar(&o.Start, "start", "", "start these `stores`, by commas, and torture one after the other: "+
		strings.Join(torture.Stores(), ", ")+", or all")
	flag.StringVar(&o.URL, "url", "", "torture the store at this `URL`, as the command fencelock writes it; "+
		"nobody else may use it meanwhile. A password is better put into "+storeurl.EnvPassword)
	flag.StringVar(&o.Service, "service", "",
		"lock with the `library` of that name: redis+redsync, redis+redislock; by default ours")
	flag.DurationVar(&o.For, "for", time.Minute, "for how `long` faults are brought, over all stores")
	flag.Uint64Var(&o.Seed, "seed", 0,
		"what decides who does what, and which faults come when; by default a random `number`")
	flag.StringVar(&o.Faults, "faults", "all", "these `faults`, by commas; all for all that there is something for "+
		"but flushall, or none:\n"+torture.Faults())
	flag.DurationVar(&o.TTL, "ttl", time.Second, "the `lease`")
	flag.StringVar(&o.Dir, "dir", "", "the `folder` for histories and reports; by default a new temporary one")
	flag.StringVar(&judge, "judge", "",
		"judge the history in this `folder` once more, as of the library that -service names")
	flag.Parse()
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 40)
	}
	return o, judge
}

// run reports whether a rule was breached.
func run() (breached bool, err error) {
	if err := torture.OwnMounts(); err != nil {
		return false, err
	}
	o, judge := parse()
	switch {
	case flag.NArg() > 0:
		return false, fmt.Errorf("there are no arguments: see -help")
	case judge != "":
		o.Dir = judge
		r, err := torture.Judge(o)
		if err != nil {
			return false, err
		}
		r.Summary(os.Stdout)
		return len(r.Violations) > 0, nil
	case (o.Start == "") == (o.URL == ""):
		return false, fmt.Errorf("say either what to -start or which -url to torture: see -help")
	}
	root, err := folder(o.Dir)
	if err != nil {
		return false, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	stores := strings.Split(o.Start, ",")
	if o.Start == "all" {
		stores = torture.Stores()
	}
	o.For /= time.Duration(len(stores))
	var results []*torture.Result
	failed := false
	for _, store := range stores {
		o.Start, o.Dir = store, filepath.Join(root, cmp.Or(store, "url"))
		r, err := torture.Run(ctx, o)
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "torture: %s: %v\n", filepath.Base(o.Dir), err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		results = append(results, r)
		table := torture.Markdown(results)
		if err := os.WriteFile(filepath.Join(root, "summary.md"), []byte(table), 0o644); err != nil {
			return false, err
		}
		r.Summary(os.Stdout)
		breached = breached || len(r.Violations) > 0
	}
	fmt.Printf("seed %d; everything is in %s, the numbers in summary.md\n", o.Seed, root)
	if failed && !breached {
		return false, errors.New("not every run could be made")
	}
	return breached, nil
}

// folder is the folder for everything.
func folder(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "torture-")
	}
	return filepath.Abs(dir)
}
