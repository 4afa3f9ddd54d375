// Package sql_test holds the dialects of sqllock to the laws of package driver, on real
// databases, and to what several processes on one database need. Each test runs on the
// databases that its subject exists on, in a subtest of that database's name. Servers start
// when the first test wants them: -run /SQLite needs none.
package sql_test

import (
	"fmt"
	"io"
	"log"
	"os"
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
	testserver.Parallel(12)
	code := m.Run()
	testserver.StopShared(code != 0)
	err := goleak.Find()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		err = goleak.Find() // what ends may take long on a busy machine
	}
	if err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// The servers that tests share which do nothing to them.
var (
	sharedPostgres = testserver.Shared(testserver.StartPostgres,
		testserver.Config("log_min_error_statement = panic", "log_checkpoints = off"))
	sharedMariaDB = testserver.Shared(testserver.StartMariaDB)
)
