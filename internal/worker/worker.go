// Package worker lets a program start itself again as a process that takes locks: a goroutine
// cannot be killed or stopped alone.
//
// TestMain calls Main first, and a test calls Start. Both talk by lines. A program that is no
// test calls Main first in main, and starts a Command by itself.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// variable holds the order of a worker, as JSON.
const variable = "FENCELOCK_TEST_ORDER"

// Command is this program as a worker with an order. It is killed when ctx ends.
func Command(ctx context.Context, order any) (*exec.Cmd, error) {
	text, err := json.Marshal(order)
	self, err2 := os.Executable()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd, errors.Join(err, err2)
}

// Main does what a Command orders, and ends the process. In a process that is no worker it
// returns at once. A worker whose parent is gone ends.
func Main[Order any](do func(Order) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			told <- in.Text()
		}
		os.Exit(1)
	}()
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = do(o)
	}
	if err != nil {
		Say("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// told is what the parent says.
var told = make(chan string, 100)

// Say sends a line to the parent of this worker.
func Say(words ...any) { fmt.Println(words...) }

// Told waits for a line from the parent of this worker.
func Told() string { return <-told }
