// Command fencelock holds a distributed lock while a command runs, and shows,
// waits for and breaks such locks. See fencelock help.
package main

import (
	"os"
	_ "time/tzdata" // so that once --tz works where the system has no time zones

	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

func main() {
	if code, mine := child.Main(); mine {
		os.Exit(code)
	}
	os.Exit(execute())
}
