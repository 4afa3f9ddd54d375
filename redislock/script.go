package redislock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed script/*.lua
var files embed.FS

// script is one Lua script. Its parts are put together when the program starts;
// nothing that a user wrote ever gets into its text.
type script struct {
	name   string
	source any // boxed once: both are sent with every request
	sha    any
}

var (
	enterScript   = load("enter")
	leaveScript   = load("leave")
	renewScript   = load("renew")
	lookScript    = load("look")
	breakScript   = load("break")
	readScript    = load("read")
	reserveScript = load("reserve")
)

func load(name string) *script {
	text := text(name)
	sum := sha1.Sum([]byte(text))
	return &script{name: name, source: text, sha: hex.EncodeToString(sum[:])}
}

// text returns a file with those that it includes, each in a line of its own.
func text(name string) string {
	b, err := files.ReadFile("script/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if file, ok := strings.CutPrefix(line, "--include "); ok {
			out.WriteString(text(strings.TrimSuffix(strings.TrimSpace(file), ".lua")))
			continue
		}
		out.WriteString(line)
	}
	return out.String()
}
