// Package sql_test holds the dialects of sqllock to the laws of package driver, on real
// databases, and to what several processes on one database need. Each test runs on the
// databases that its subject exists on, in a subtest of that database's name. Servers start
// when the first test wants them: -run /SQLite needs none.
package sql_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/internal/line"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	// The driver writes of broken connections, which tests break on purpose.
	mysql.SetLogger(log.New(io.Discard, "", 0))
	line.ForgetEvery = 10000 * time.Hour // tests count the statements of a step, and each Backend begins at random
	worker.Main(worker.On(place.open))
	testserver.Parallel("12")
	code := m.Run()
	stopServers(code != 0)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// servers are those that tests share which do nothing to them.
var servers struct {
	sync.Mutex
	running []*testserver.Server
	dirs    []string
}

// The servers that tests share.
var (
	sharedPostgres = shared(func(dir string) (*testserver.Server, error) {
		return testserver.StartPostgres(context.Background(), dir,
			testserver.Config("log_min_error_statement = panic", "log_checkpoints = off"))
	})
	sharedMariaDB = shared(func(dir string) (*testserver.Server, error) {
		return testserver.StartMariaDB(context.Background(), dir)
	})
)

// shared returns what starts a server for the first test that wants it.
func shared(start func(dir string) (*testserver.Server, error)) func(t testing.TB) *testserver.Server {
	once := sync.OnceValues(func() (*testserver.Server, error) {
		dir, err := os.MkdirTemp("", "fencelock-sql")
		if err != nil {
			return nil, err
		}
		s, err := start(dir)
		servers.Lock()
		defer servers.Unlock()
		servers.dirs = append(servers.dirs, dir)
		if err == nil {
			servers.running = append(servers.running, s)
		}
		return s, err
	})
	return func(t testing.TB) *testserver.Server {
		t.Helper()
		s, err := once()
		must(t, err)
		return s
	}
}

func stopServers(failed bool) {
	servers.Lock()
	defer servers.Unlock()
	for _, s := range servers.running {
		if failed {
			fmt.Printf("log of a server:\n%s\n", s.Log())
		}
		s.Stop()
	}
	for _, dir := range servers.dirs {
		os.RemoveAll(dir)
	}
}
