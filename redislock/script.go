package redislock

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed script/*.lua
var files embed.FS

// script is one Lua script. Nothing that a user wrote gets into its text.
type script struct {
	text, sha any // strings, of which each call has one as an argument
	maxLocks  int // that one call is for: the server does nothing else meanwhile
}

// How many locks one call is for: a millisecond of the server at most. A hand-over takes it 35 µs, a
// renewal 5 µs.
const (
	maxJoined   = 32
	maxRenewals = 64
)

var (
	enterScript      = loadLine(maxJoined, "enter") // prelude.lua, claim.lua, queue.lua, enter.lua
	ballotScript     = loadLine(maxJoined, "member", "enter")
	leaveScript      = loadLine(maxJoined, "drop", "leave")
	renewScript      = loadLine(maxRenewals, "renew")
	awaitScript      = loadLine(maxJoined, "await")
	breakScript      = loadLine(1, "drop", "break")
	adoptScript      = loadLine(1, "adopt")
	lookScript       = loadLine(1, "look")
	reserveScript    = loadLine(1, "reserve")
	initialiseScript = loadScript(1, "prelude", "member", "initialise")
	historyAddScript = loadScript(1, "history_add")
)

func loadLine(maxLocks int, names ...string) *script {
	return loadScript(maxLocks, append([]string{"prelude", "claim", "queue"}, names...)...)
}

// loadScript puts a script together from its files.
func loadScript(maxLocks int, names ...string) *script {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(scriptText(name))
	}
	return &script{text: text.String(), sha: redis.NewScript(text.String()).Hash(), maxLocks: maxLocks}
}

func scriptText(name string) string {
	b, err := files.ReadFile("script/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}
