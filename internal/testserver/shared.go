package testserver

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// shared are what StopShared does with the servers that tests have shared.
var shared struct {
	sync.Mutex
	stop []func(failed bool)
}

// Shared returns the one server of a kind that the tests of a package use, each with keys of its own. The first
// test that wants it starts it, and TestMain ends it with StopShared.
func Shared(
	start func(ctx context.Context, dir string, opts ...Option) (*Server, error), opts ...Option,
) func(TB) *Server {
	once := sync.OnceValues(func() (*Server, error) {
		dir, err := os.MkdirTemp("", "fencelock-server-")
		if err != nil {
			return nil, err
		}
		s, err := start(context.Background(), dir, opts...)
		shared.Lock()
		defer shared.Unlock()
		shared.stop = append(shared.stop, func(failed bool) {
			if err == nil {
				s.Stop()
			}
			if err == nil && failed {
				fmt.Printf("the log of %s on %s ends:\n%s\n", s.kind.name, s.Addr(), s.tail())
			}
			os.RemoveAll(dir)
		})
		return s, err
	})
	return func(tb TB) *Server {
		tb.Helper()
		s, err := once()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		return s
	}
}

// StopShared ends the servers that tests have shared, and prints the ends of their logs if a test has failed.
func StopShared(failed bool) {
	shared.Lock()
	defer shared.Unlock()
	for _, stop := range shared.stop {
		stop(failed)
	}
	shared.stop = nil
}

// Parallel lets n tests of the calling package run at once on two processors, and half as many on one, unless
// -parallel says otherwise. Tests of servers wait most of the time and need no processor for that. TestMain calls it.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n*min(2, runtime.GOMAXPROCS(0))/2)); err != nil {
		panic(err)
	}
}
