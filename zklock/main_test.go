package zklock

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if worker() {
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Most tests wait for sessions to expire, and need no processor for that.
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	stopServer()
	os.Exit(code)
}
