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
	enterScript      = loadScript("enter")
	leaveScript      = loadScript("leave")
	renewScript      = loadScript("renew")
	awaitScript      = loadScript("await")
	breakScript      = loadScript("break")
	linesScript      = loadScript("lines")
	reserveScript    = loadScript("reserve")
	ballotScript     = loadScript("ballot")
	initialiseScript = loadScript("initialise")
)

func loadScript(name string) *transport.Script {
	return transport.NewScript(name, scriptText(name))
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
