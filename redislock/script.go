package redislock

import (
	"embed"
	"strings"

	"github.com/fencelock/fencelock/redislock/internal/transport"
)

//go:embed script/*.lua
var files embed.FS

// The scripts are put together when the program starts. Nothing that a user wrote gets
// into their text.
var (
	enterScript      = loadScript("enter", maxShort)
	leaveScript      = loadScript("leave", maxShort)
	renewScript      = loadScript("renew", maxRenewals)
	awaitScript      = loadScript("await", 1)
	breakScript      = loadScript("break", 1)
	linesScript      = loadScript("lines", 1)
	reserveScript    = loadScript("reserve", 1)
	ballotScript     = loadScript("ballot", maxShort)
	initialiseScript = loadScript("initialise", 1)
)

// How many locks one call of a script takes. The server does nothing else meanwhile: a call
// takes it about a third of a millisecond, and one where other processes wait for each lock a whole one.
const (
	maxShort    = 64
	maxRenewals = 200
)

func loadScript(name string, maxLocks int) *transport.Script {
	return transport.NewScript(name, scriptText(name), maxLocks)
}

// scriptText returns a file, and in the place of each line that says --include the
// file that it names.
func scriptText(name string) string {
	b, err := files.ReadFile("script/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if file, ok := strings.CutPrefix(line, "--include "); ok {
			out.WriteString(scriptText(strings.TrimSuffix(strings.TrimSpace(file), ".lua")))
			continue
		}
		out.WriteString(line)
	}
	return out.String()
}
