package main

import (
	"fmt"
	"regexp"
	"strings"
)

// readmeProgram returns the Go program of the README, with the address of another Redis server.
func readmeProgram(readme, redis string) (string, error) {
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(readme, -1)
	if len(blocks) != 1 || !strings.HasPrefix(blocks[0][1], "package main") {
		return "", fmt.Errorf("README.md has %d blocks of Go; expected is one, a program", len(blocks))
	}
	const address = `"127.0.0.1:6379"`
	if !strings.Contains(blocks[0][1], address) {
		return "", fmt.Errorf("the program of README.md does not use a Redis server at %s", address)
	}
	return strings.Replace(blocks[0][1], address, fmt.Sprintf("%q", redis), 1), nil
}
