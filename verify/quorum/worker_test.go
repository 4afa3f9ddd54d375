package quorum_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// A worker is this test binary again, as a process of its own, that holds a lock.

type order struct {
	Addrs []string
	Key   string
	TTL   time.Duration
}

const orderVariable = "FENCELOCK_TEST_ORDER"

// worker does what the environment says, and returns false if it says nothing.
func worker() bool {
	text := os.Getenv(orderVariable)
	if text == "" {
		return false
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	b, _ := quorumOf(o.Addrs, membership)
	c := fencelock.New(b, &fencelock.Options{TTL: o.TTL})
	l, err := c.Lock(context.Background(), o.Key)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("held", l.Token())
	// It says each moment that it still believes, and when it no longer does.
	for l.Err() == nil {
		fmt.Println("believes", time.Now().UnixNano())
		<-time.After(2 * time.Millisecond)
	}
	fmt.Println("lost", time.Now().UnixNano())
	c.Close()
	return true
}

// process is a worker as its parent sees it.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner

	believed int64 // when it last said so
}

func start(t *testing.T, o order) *process {
	t.Helper()
	text, err := json.Marshal(o)
	check(t, err)
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	check(t, err)
	p.cmd.Stdout = w
	p.out = bufio.NewScanner(io.Reader(r))
	check(t, p.cmd.Start())
	w.Close()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		r.Close()
	})
	return p
}

// hears reads lines up to one that begins with word, and returns its number.
func (p *process) hears(word string) (n int64) {
	p.t.Helper()
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), "believes "); ok {
			fmt.Sscan(rest, &p.believed)
		}
		if rest, ok := strings.CutPrefix(p.out.Text(), word+" "); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	p.t.Fatalf("the worker ended without a word of %q", word)
	return 0
}
