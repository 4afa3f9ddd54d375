// Package worker lets a test binary start itself again as a process that takes locks: a
// goroutine cannot be killed or stopped alone.
//
// TestMain calls Main first. A test calls Start. Both talk by lines.
package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// variable holds the order of a worker, as JSON.
const variable = "FENCELOCK_TEST_ORDER"

// Main does what Start ordered, and ends the process. In a process that Start has not started
// it returns at once. A worker whose parent is gone ends.
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
